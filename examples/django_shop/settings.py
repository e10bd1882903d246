"""A project with a single app."""

import os

from psycopg.conninfo import conninfo_to_dict

_parts = conninfo_to_dict(os.environ["DATABASE_URL"])

SECRET_KEY = "only an example"
INSTALLED_APPS = ["shop"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts.get("dbname"),
        "HOST": _parts.get("host"),
        "PORT": _parts.get("port"),
        "USER": _parts.get("user"),
        "PASSWORD": _parts.get("password"),
    }
}
