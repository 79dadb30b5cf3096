"""Settings: all of them from the environment, with defaults that point at the embedded stack.

The unit of a quantity is the end of its name (`_MS`, `_S`, `_BYTES`). Services are found by DATABASE_URL,
REDIS_URL, VAULT_ADDR and VAULT_TOKEN; where one is not set, by what `python manage.py stack up` wrote under
REMORA_HOME.
"""

import os
from typing import Any

import dj_database_url

from remora_site.env import Env
from remora_site.keeping import kept_secret
from remora_site.stack.addresses import PROJECT, read_addresses, remora_home

env = Env(os.environ)

# --- this deployment --------------------------------------------------------------------------------------
BASE_DIR = PROJECT
env.text("REMORA_HOME")
REMORA_HOME = remora_home()
env.text("REMORA_STACK_FAST")  # read by remora_site.stack
env.text("REMORA_FAILPOINTS")  # read by workers.failpoints, in tests only
DEBUG = env.flag("REMORA_DEBUG", False)
SECRET_KEY = env.text("REMORA_SECRET_KEY") or kept_secret(REMORA_HOME / "secret_key")
ALLOWED_HOSTS = env.words("REMORA_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("REMORA_CSRF_TRUSTED_ORIGINS", "")
_https = env.flag("REMORA_HTTPS", False)

# --- where the stores are ---------------------------------------------------------------------------------
_embedded = read_addresses(REMORA_HOME)
REMORA_DATABASE_URL = env.text("DATABASE_URL", _embedded.database_url)
REDIS_URL = env.text("REDIS_URL", _embedded.redis_url)
VAULT_ADDR = env.text("VAULT_ADDR", _embedded.vault_addr)
VAULT_TOKEN = env.text("VAULT_TOKEN", _embedded.vault_token)

DATABASES: dict[str, Any] = {"default": {"ENGINE": "remora_site.no_database", "NAME": "remora"}}
if REMORA_DATABASE_URL:
    DATABASES["default"] = dict(dj_database_url.parse(REMORA_DATABASE_URL))
    DATABASES["default"]["OPTIONS"] = {
        "connect_timeout": env.whole("REMORA_DATABASE_CONNECT_S", 5),
        # A connection whose peer vanished is noticed within half a minute instead of never.
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    } | DATABASES["default"].get("OPTIONS", {})
DATABASES["default"] |= {
    "CONN_MAX_AGE": env.whole("REMORA_DATABASE_KEEP_S", 600, least=0),
    "CONN_HEALTH_CHECKS": True,
    # A cursor kept open on the server does not survive a pooler that hands out a connection per transaction.
    "DISABLE_SERVER_SIDE_CURSORS": True,
    "ATOMIC_REQUESTS": False,
}

# Who Remora is in Vault (an AppRole, a token, or a file with one), and where in it secrets lie.
# One prefix belongs to one deployment.
VAULT_TOKEN_FILE = env.text("VAULT_TOKEN_FILE")
_own_vault = _embedded.vault_addr == VAULT_ADDR  # another one does not know the embedded one's AppRole
VAULT_ROLE_ID = env.text("VAULT_ROLE_ID", _embedded.vault_role_id if _own_vault else "")
VAULT_SECRET_ID = env.text("VAULT_SECRET_ID", _embedded.vault_secret_id if _own_vault else "")
VAULT_SECRET_ID_FILE = env.text("VAULT_SECRET_ID_FILE")
VAULT_NAMESPACE = env.text("VAULT_NAMESPACE")
VAULT_CACERT = env.text("VAULT_CACERT")
REMORA_VAULT_APPROLE_MOUNT = env.text("REMORA_VAULT_APPROLE_MOUNT", "approle")
REMORA_VAULT_MOUNT = env.text("REMORA_VAULT_MOUNT", "secret")
REMORA_VAULT_PREFIX = env.text("REMORA_VAULT_PREFIX", "remora")
REMORA_VAULT_CONNECT_MS = env.whole("REMORA_VAULT_CONNECT_MS", 3_000)
REMORA_VAULT_ANSWER_MS = env.whole("REMORA_VAULT_ANSWER_MS", 10_000)

# One hash tag, so that a script's keys are in one slot of a cluster. The broker's keys stay outside it.
REMORA_REDIS_PREFIX = env.text("REMORA_REDIS_PREFIX", "{remora}:")
REMORA_BROKER_PREFIX = REMORA_REDIS_PREFIX.strip("{}:") + "-broker:"

# --- leases and reservations (Redis' clock) ---------------------------------------------------------------
REMORA_LEASE_MS = env.whole("REMORA_LEASE_MS", 15_000)
REMORA_RENEW_MS = env.whole("REMORA_RENEW_MS", 5_000)
REMORA_RESERVATION_MS = env.whole("REMORA_RESERVATION_MS", 10_000)
REMORA_PRESENCE_MS = env.whole("REMORA_PRESENCE_MS", 45_000)
REMORA_REDIS_TIMEOUT_MS = env.whole("REMORA_REDIS_TIMEOUT_MS", 2_000)
REMORA_REDIS_RETRIES = env.whole("REMORA_REDIS_RETRIES", 1, least=0)
REMORA_COORDINATION_BATCH_MAX = env.whole("REMORA_COORDINATION_BATCH_MAX", 200)  # elements of one script call

# --- how often each duty runs, how much one run may take on -----------------------------------------------
REMORA_DISPATCH_S = env.whole("REMORA_DISPATCH_S", 2)
REMORA_REAPER_S = env.whole("REMORA_REAPER_S", 2)
REMORA_RETRY_S = env.whole("REMORA_RETRY_S", 2)
REMORA_GC_S = env.whole("REMORA_GC_S", 5)
REMORA_STAGE_S = env.whole("REMORA_STAGE_S", 5)
REMORA_WATCHDOG_S = env.whole("REMORA_WATCHDOG_S", 5)
REMORA_REOFFER_S = env.whole("REMORA_REOFFER_S", 5)
REMORA_REOFFER_MAX_S = env.whole("REMORA_REOFFER_MAX_S", 60)  # each offer that nobody takes doubles the wait
REMORA_SWEEP_ROWS_MAX = env.whole("REMORA_SWEEP_ROWS_MAX", 500)

# --- permits ----------------------------------------------------------------------------------------------
REMORA_GLOBAL_LIMIT = env.whole("REMORA_GLOBAL_LIMIT", 1000)
REMORA_QUEUE_LIMITS = env.limits("REMORA_QUEUE_LIMITS")
REMORA_KEY_LIMIT = env.whole("REMORA_KEY_LIMIT", 0, least=0)  # 0: no limit per concurrency key
REMORA_LOCAL_LIMIT = env.whole("REMORA_LOCAL_LIMIT", os.cpu_count() or 1)

# --- retries ----------------------------------------------------------------------------------------------
REMORA_MAX_ATTEMPTS = env.whole("REMORA_MAX_ATTEMPTS", 20)
REMORA_MAX_FAILURES = env.whole("REMORA_MAX_FAILURES", 5)
REMORA_MAX_LOSSES = env.whole("REMORA_MAX_LOSSES", 3)
REMORA_BACKOFF_BASE_S = env.whole("REMORA_BACKOFF_BASE_S", 2)
REMORA_BACKOFF_CAP_S = env.whole("REMORA_BACKOFF_CAP_S", 300)

# --- secrets ----------------------------------------------------------------------------------------------
REMORA_CREDENTIAL_S = env.whole("REMORA_CREDENTIAL_S", 10)
# For how long after its last step an intent is left to its writer.
REMORA_CREDENTIAL_QUIET_S = env.whole("REMORA_CREDENTIAL_QUIET_S", 20, least=0)
REMORA_WRITE_TOKEN_S = env.whole("REMORA_WRITE_TOKEN_S", 60)
REMORA_READ_TOKEN_S = env.whole("REMORA_READ_TOKEN_S", 60)
REMORA_FORGET_S = env.whole("REMORA_FORGET_S", 600, least=0)  # several times Vault's longest request
REMORA_SECRET_BYTES_MAX = env.whole("REMORA_SECRET_BYTES_MAX", 65_536)
REMORA_SECRETS_MAX = env.whole("REMORA_SECRETS_MAX", 20)

# --- execution --------------------------------------------------------------------------------------------
REMORA_CHECKPOINT_BYTES = env.whole("REMORA_CHECKPOINT_BYTES", 64 * 1024 * 1024)
REMORA_CHECKPOINT_S = env.whole("REMORA_CHECKPOINT_S", 5)
REMORA_STOP_GRACE_S = env.whole("REMORA_STOP_GRACE_S", 10)
REMORA_DRAIN_S = env.whole("REMORA_DRAIN_S", 20)  # how long a stopping worker lets its attempts go on
REMORA_HOST_START_S = env.whole("REMORA_HOST_START_S", 30)
REMORA_HOST_ATTEMPTS_MAX = env.whole("REMORA_HOST_ATTEMPTS_MAX", 100)  # then a fresh process
REMORA_PROBE = env.flag("REMORA_PROBE", False)  # the kind that breaks things on purpose, for tests and chaos
REMORA_DEAF_S = env.whole("REMORA_DEAF_S", 10)  # a worker that hears nothing for so long starts itself anew
REMORA_SPEC_BYTES_MAX = env.whole("REMORA_SPEC_BYTES_MAX", 1024 * 1024)

# --- Django -----------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_celery_beat",
    "jobs",
    "credentials",
    "workers",
    "remora_site",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "remora_site.urls"
WSGI_APPLICATION = "remora_site.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"
WHITENOISE_USE_FINDERS = (
    True  # the admin's files are served from where they are installed, without a collecting step
)
LOGIN_URL = "admin:login"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{validator}"}
    for validator in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
DATA_UPLOAD_MAX_MEMORY_SIZE = REMORA_SPEC_BYTES_MAX + 64 * 1024

# --- logs: one JSON object a line, on stderr; stdout belongs to the answers of commands -------------------
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "remora_site.logs.LineFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.text("REMORA_LOG_LEVEL", "INFO").upper()},
    "loggers": {
        name: {"handlers": ["stderr"], "propagate": False, "level": level}
        for name, level in (
            ("django", "WARNING"),
            ("django.server", "WARNING"),
            ("celery.beat", "WARNING"),
            # Two lines for every tick of every duty say nothing that the duties' own lines do not.
            ("celery.worker.strategy", "WARNING"),
            ("celery.app.trace", "WARNING"),
        )
    },
}
