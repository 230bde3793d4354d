"""How signatures are checked while tests run: beartype, where an int is also a float."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
