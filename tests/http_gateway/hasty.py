"""HTTP gateway that waits half a second for the outcome of a message: `python -m tests.http_gateway.hasty --config
FILE`."""

from services.http_gateway.__main__ import main
from services.http_gateway.api import posting

setattr(posting, "OUTCOME_WITHIN", 0.5)  # noqa: B010  a constant


if __name__ == "__main__":
    main()
