"""Forms into which material is typed, and out of which it never comes: not even back to who typed it."""

from __future__ import annotations

from typing import Any

from django import forms

from credentials.models import ConnectionKind
from credentials.secret import Secret

MATERIAL_FIELDS = (
    "username",
    "password",
    "token",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "private_key",
    "passphrase",
)


class HiddenTextarea(forms.Textarea):
    """Takes many lines, and is always empty when it is shown: also after an error."""

    def format_value(self, value: Any) -> None:
        return None


class MaterialForm(forms.Form):
    """Fill in what the kind of connection has; leave the rest empty."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        for name in MATERIAL_FIELDS:
            widget: forms.Widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
            if name == "private_key":
                widget = HiddenTextarea(attrs={"rows": 6, "autocomplete": "off", "spellcheck": "false"})
            self.fields[f"material_{name}"] = forms.CharField(
                label=name.replace("_", " "), required=False, strip=name != "password", widget=widget
            )
        self.fields["material_other"] = forms.CharField(
            label="other fields",
            required=False,
            strip=False,
            widget=HiddenTextarea(attrs={"rows": 3, "autocomplete": "off", "spellcheck": "false"}),
            help_text="For a generic connection: one name=value a line.",
        )

    def clean(self) -> dict[str, Any]:
        """`material` is what was typed, wrapped at once; the plain texts do not stay in the form's data."""
        cleaned = dict(super().clean() or {})
        material = {}
        for name in MATERIAL_FIELDS:
            if typed := cleaned.pop(f"material_{name}", ""):
                material[name] = Secret(typed.replace("\r\n", "\n"))
        for line in cleaned.pop("material_other", "").splitlines():
            name, separator, value = line.partition("=")
            if separator:
                material[name.strip()] = Secret(value)
            elif line.strip():
                self.add_error("material_other", "Each line is name=value.")
        cleaned["material"] = material
        if not material and not self.errors:
            self.add_error(None, "Nothing was typed in.")
        return cleaned


class NewConnectionForm(MaterialForm):
    name = forms.CharField(max_length=100)
    kind = forms.ChoiceField(choices=ConnectionKind.choices)
    settings = forms.JSONField(
        required=False,
        initial=dict,
        help_text="What is no secret, such as an endpoint. Everybody who may see connections sees it.",
    )

    field_order = ("name", "kind", "settings")


class RotationForm(MaterialForm):
    expected_number = forms.IntegerField(widget=forms.HiddenInput)


class RetirementForm(forms.Form):
    """Nothing to fill in: the page asks, the button answers."""
