"""Row 5, encoders: the model hub; a repository's name flows in, a file on this disk flows out.

``HF_HOME``, ``HF_TOKEN`` and ``HF_HUB_OFFLINE`` are honoured by ``huggingface_hub`` itself.
"""

from __future__ import annotations

from pathlib import Path

from zoommil.encoders.card import EncoderCard
from zoommil.errors import WeightsError


def fetch_from_hub(card: EncoderCard, repository: str) -> Path:
    """The first of a card's files that its repository has, from the local cache or the network.

    Raises:
        WeightsError: gated, unknown, or not reachable and not cached; says the exact step to take.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    for file_name in card.files:  # what is here needs no network, and stays the same bytes
        cached = try_to_load_from_cache(repository, file_name)
        if isinstance(cached, str):
            return Path(cached)
    for file_name in card.files:
        try:
            return Path(hf_hub_download(repository, file_name))
        except LocalEntryNotFoundError as error:  # a kind of EntryNotFoundError: before it
            raise _unreachable(card, repository) from error
        except EntryNotFoundError:
            continue
        except (GatedRepoError, RepositoryNotFoundError) as error:
            raise _refused(card, repository) from error
        except (HfHubHTTPError, OSError) as error:
            raise _unreachable(card, repository) from error
    raise WeightsError(
        f"the hub repository {repository!r} of the encoder {card.name!r} has none of "
        f"{', '.join(card.files)}. Download its weights by hand and pass --weights FILE."
    )


def _refused(card: EncoderCard, repository: str) -> WeightsError:
    return WeightsError(
        f"the hub refuses the weights of the encoder {card.name!r} ({card.licence}"
        f"{', gated' if card.gated else ''}). Accept the licence "
        f"at https://huggingface.co/{repository}, then run `hf auth login` or set HF_TOKEN."
    )


def _unreachable(card: EncoderCard, repository: str) -> WeightsError:
    gated = (
        f" (gated: first accept the licence at https://huggingface.co/{repository})"
        if card.gated
        else ""
    )
    return WeightsError(
        f"the weights of the encoder {card.name!r} are not in the local cache and the hub cannot "
        f"be reached (offline, or HF_HUB_OFFLINE is set). With a network run `hf download "
        f"{repository} {card.files[0]}`{gated}, or pass --weights FILE, or random:SEED to try."
    )
