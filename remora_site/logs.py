"""How a log record becomes one line: a JSON object, with the caller's `extra` beside the message."""

import json
import logging
from datetime import UTC, datetime

from credentials.scrub import scrub_values

_STANDARD = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class LineFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD | set(line)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Libraries quote URLs and headers in what they log and raise, and at DEBUG they do it freely.
        return json.dumps(scrub_values(line), default=str, ensure_ascii=False)
