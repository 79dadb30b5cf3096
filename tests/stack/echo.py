"""A Celery application of its own with the project's configuration, for tests of that configuration alone."""

import json
import os

import redis
from celery import Celery

app = Celery("echo")
app.conf.update(json.loads(os.environ["ECHO_CONFIGURATION"]))


@app.task(name="echo.say")
def say(word: str) -> None:
    with redis.Redis.from_url(app.conf.broker_url) as client:
        client.rpush("said", word)
