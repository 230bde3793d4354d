"""Row 16, ``zoommil bench``: which measurement, where to; its page printed and written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoommil.cli import options, terminal
from zoommil.cli.accept import accept
from zoommil.errors import ConfigError

if TYPE_CHECKING:
    from zoommil.benches.results import BenchResult

app = typer.Typer(
    help="Measure this package on this machine. Example: `zoommil bench extract`",
    no_args_is_help=True,
)
app.command()(accept)

OutOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the page and its JSON.")
]
WorkOption = Annotated[
    Path, typer.Option("--work", help="Folder for slides made for the measurement; kept.")
]
ThreadsOption = Annotated[
    int | None, typer.Option("--threads", help="Cores to use instead of the bench's own.", min=1)
]
WORK = Path(".zoommil-bench")
BESIDE = ("out", "work", "workers", "folder", "bags")
"""Where things lie and who works on them: not what is measured."""


@app.command()
def extract(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    rounds: Annotated[int, typer.Option(help="Measurements of each path.", min=1)] = 3,
) -> None:
    """Patches per second from slides to bags, against the encoder alone and a plain loop.

    Example: `zoommil bench extract --out docs/results`
    """
    from zoommil.benches.extract import bench_extract

    show(context, bench_extract(work, rounds=rounds), out)


@app.command()
def probe(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    slides: Annotated[int, typer.Option(help="Slides of each cohort.", min=6)] = 60,
    side_px: Annotated[int, typer.Option(help="Side of a slide.", min=2048)] = 6144,
) -> None:
    """What each magnification of a synthetic slide gives away: the generator's honesty.

    Example: `zoommil bench probe --out docs/results`
    """
    from zoommil.benches.probe import bench_probe, probe_cohorts

    cohorts = probe_cohorts(slides, side_px)
    show(context, bench_probe(work / "pays", cohorts, progress=terminal.say), out)


@app.command()
def flops(context: typer.Context, out: OutOption = None) -> None:
    """The paper's tables of operations, counted from the networks, beside what it published.

    Example: `zoommil bench flops --out docs/results`
    """
    from zoommil.benches.flops import bench_flops

    show(context, bench_flops(), out)


@app.command()
def generate(context: typer.Context, out: OutOption = None, work: WorkOption = WORK) -> None:
    """Time and memory of making a synthetic slide of 100 000 x 100 000 pixels, 25% tissue.

    Example: `zoommil bench generate --out docs/results`
    """
    from zoommil.benches.generate import bench_generate

    show(context, bench_generate(work), out)


@app.command()
def zoom(
    context: typer.Context,
    out: OutOption = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each rule.", min=1)] = 6,
) -> None:
    """The toy that only a trained selection solves, by every selection rule and preset.

    Example: `zoommil bench zoom --out docs/results`
    """
    from zoommil.benches.zoom_toy import bench_zoom

    say = lambda row: terminal.say(str(row))  # noqa: E731
    show(context, bench_zoom(seeds=range(seeds), progress=say), out)


@app.command()
def step(context: typer.Context, out: OutOption = None) -> None:
    """One training step of this implementation against the dense one: time and memory.

    Example: `zoommil bench step --out docs/results`
    """
    from zoommil.benches.step import bench_step

    show(context, bench_step(progress=lambda cost: terminal.say(str(cost))), out)


@app.command()
def training(context: typer.Context, out: OutOption = None, work: WorkOption = WORK) -> None:
    """20 epochs on 200 bags of (60, 240, 3840) x 1024 features, and where the time goes.

    Example: `zoommil bench training --out docs/results`
    """
    from zoommil.benches.training import bench_training

    show(context, bench_training(work), out)


@app.command()
def mil_sets(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Holds musk1_scaled, elephant_scaled, fox_scaled. [$ZOOMMIL_DATA/bags]"
        ),
    ] = None,
    out: OutOption = None,
    work: WorkOption = WORK,
    repetitions: Annotated[int, typer.Option(help="Cross-validations of each.", min=1)] = 5,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 1,
) -> None:
    """Classic MIL data sets of plain vectors, cross-validated by bag.

    Example: `zoommil bench mil-sets MIL_FOLDER --out docs/results`
    """
    from zoommil.benches.mil_sets import bench_mil_sets, mil_folder

    say = lambda score: terminal.say(str(score))  # noqa: E731
    found = bench_mil_sets(
        mil_folder(folder),
        work / "mil_sets",
        repetitions=repetitions,
        workers=workers,
        progress=say,
    )
    show(context, found, out)


@app.command()
def pays(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    slides: Annotated[int, typer.Option(help="Slides of each cohort.", min=15)] = 60,
    seeds: Annotated[int, typer.Option(help="Seeds of each method.", min=1)] = 3,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 2,
) -> None:
    """Zooming on synthetic slides: against the lowest magnification, and against the highest.

    Goes on where an earlier call with the same --work ended. Example:
    `zoommil bench pays --out docs/results`
    """
    from zoommil.benches.zoom_pays import PaysSpec, bench_pays

    spec = PaysSpec(num_slides=slides, seeds=tuple(range(seeds)))
    show(context, bench_pays(work, spec=spec, workers=workers, say=terminal.say), out)


@app.command()
def heatmap(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    rounds: Annotated[int, typer.Option(help="Processes of each.", min=1)] = 3,
) -> None:
    """Time and memory of the heatmap of a 100 000 x 100 000 slide from a stored prediction.

    Example: `zoommil bench heatmap --out docs/results`
    """
    from zoommil.benches.heatmap import bench_heatmap

    show(context, bench_heatmap(work, rounds=rounds), out)


@app.command()
def localise(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    slides: Annotated[int, typer.Option(help="Slides of the cohort.", min=15)] = 60,
    seeds: Annotated[int, typer.Option(help="Seeds of the model.", min=1)] = 3,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 2,
) -> None:
    """Whether attention finds lesions it was never shown, at every step, out of fold.

    Uses the slides and runs of `zoommil bench pays` with the same --work. Example:
    `zoommil bench localise --out docs/results`
    """
    from zoommil.benches.localise import bench_localise
    from zoommil.benches.zoom_pays import PaysSpec

    spec = PaysSpec(num_slides=slides, seeds=tuple(range(seeds)))
    show(context, bench_localise(work, spec=spec, workers=workers, say=terminal.say), out)


@app.command()
def precision(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    slides: Annotated[int, typer.Option(help="Slides of the cohort.", min=15)] = 60,
    seeds: Annotated[int, typer.Option(help="Seeds of the runs; the first is used.", min=1)] = 3,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 2,
) -> None:
    """What fp32, bf16 and int8 change: features, choices, answers, speed.

    Uses the slides and runs of `zoommil bench pays` with the same --work. Example:
    `zoommil bench precision --out docs/results`
    """
    from zoommil.benches.precision import bench_precision
    from zoommil.benches.zoom_pays import PaysSpec

    spec = PaysSpec(num_slides=slides, seeds=tuple(range(seeds)))
    show(context, bench_precision(work, spec=spec, workers=workers, say=terminal.say), out)


@app.command()
def budget(
    context: typer.Context,
    artefact: Annotated[
        Path | None, typer.Argument(help="A trained model. [those of `zoommil bench pays`]")
    ] = None,
    cohort: Annotated[
        str | None, typer.Argument(help="Labelled slides that the model was not trained on.")
    ] = None,
    bags: Annotated[Path | None, typer.Option("--bags", help="Folder of the slides' bags.")] = None,
    out: OutOption = None,
    work: WorkOption = WORK,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 2,
) -> None:
    """Accuracy against cost: what a model loses when it may look at less, as a picture.

    Example: `zoommil bench budget runs/first/artefact cohort.csv --bags bags --out budget`
    """
    from zoommil.benches.budget import bench_budget, judged_by, judged_study

    if artefact is None:
        judged, name = judged_study(work, workers=workers, say=terminal.say), "budget"
    elif cohort is None or bags is None:
        raise ConfigError("a model of one's own needs its slides: ARTEFACT COHORT --bags FOLDER.")
    else:
        judged, name = judged_by(artefact, options.cohort_of(cohort), bags), "budget-own"
    show(context, bench_budget(judged, name=name, say=terminal.say), out)


@app.command()
def predict(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", help="`bright`, `crc`, `camelyon` or `large`; once for each. [all of them]"
        ),
    ] = None,
    threads: ThreadsOption = None,
    rounds: Annotated[int, typer.Option(help="How often everything is encoded.", min=1)] = 1,
) -> None:
    """Zooming against encoding everything, end to end, on slides of the paper's geometry.

    Example: `zoommil bench predict --task bright --out docs/results`
    """
    from zoommil.benches.predict import CHOICES, bench_predict

    tasks = task or CHOICES
    show(
        context,
        bench_predict(work, tasks=tasks, threads=threads, rounds=rounds, progress=terminal.say),
        out,
    )


@app.command()
def readers(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    rounds: Annotated[int, typer.Option(help="Measurements of each.", min=1)] = 3,
) -> None:
    """The fast reader of JPEG tiles against OpenSlide: speed, pixels, features, selections.

    Example: `zoommil bench readers --out docs/results`
    """
    from zoommil.benches.readers import bench_readers

    show(context, bench_readers(work, rounds=rounds), out)


@app.command()
def limits(
    context: typer.Context,
    out: OutOption = None,
    work: WorkOption = WORK,
    threads: ThreadsOption = None,
) -> None:
    """What this machine can compute at most, the encoder alone, and how near predictions come.

    Example: `zoommil bench limits --out docs/results`
    """
    from zoommil.benches.limits import bench_limits

    show(context, bench_limits(work, threads=threads, progress=terminal.say), out)


def show(context: typer.Context, result: BenchResult, out: Path | None) -> None:
    """Print a result's page and write it where asked, with the command that was typed."""
    result = replace(result, command=typed_command(context))
    typer.echo(result.to_markdown())
    if out is not None:
        terminal.say(f"written to {result.write(out)}")


def typed_command(context: typer.Context) -> str:
    """The command of a context with those options that change what is measured."""
    words = ["zoommil bench", str(context.info_name)]
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if option.name in BESIDE or value == option.get_default(context) or not value:
            continue
        if option.param_type_name == "argument":
            words.append(str(option.name).upper())
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            words += [option.opts[0], str(one)]
    return " ".join(words)
