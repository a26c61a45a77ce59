"""Django: `doc = ZsonField(profile="events")`, a JSONField with all its lookups."""

from django.db import models


class ZsonField(models.JSONField):
    """A JSONField whose column is zson."""

    def __init__(self, *args, profile=None, **kwargs):
        self.profile = profile
        super().__init__(*args, **kwargs)

    def deconstruct(self):
        name, path, args, kwargs = super().deconstruct()
        if self.profile is not None:
            kwargs["profile"] = self.profile
        return name, path, args, kwargs

    def db_type(self, connection):
        return "zson" if self.profile is None else "zson('%s')" % self.profile.replace("'", "''")
