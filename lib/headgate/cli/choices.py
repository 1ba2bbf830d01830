"""Options that many commands share, and the settings that they result in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headgate.config import LoadedSettings, load_settings
from headgate.core.errors import InvalidSettingError


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Where settings come from on the command line; each flag wins over variables, files and defaults."""

    config: Annotated[Path | None, Parameter(help="YAML file of settings; also HEADGATE_CONFIG.")] = None
    roster: Annotated[
        str | None, Parameter(help="Roster of models: a file, an http(s) URL, or `baselines` for the baseline agents.")
    ] = None
    environments: Annotated[
        str | None, Parameter(name=("--environments", "-e"), help="Environments, comma separated.")
    ] = None
    store: Annotated[
        str | None, Parameter(help="Sample store: a folder, s3://bucket/prefix or r2://bucket/prefix.")
    ] = None
    journal: Annotated[Path | None, Parameter(help="Folder of the journal.")] = None
    campaign: Annotated[
        str | None, Parameter(help="Name of the campaign, or a YAML file of its settings, as --config takes.")
    ] = None
    workers: Annotated[int | None, Parameter(help="Episodes in progress at most.")] = None
    set: Annotated[
        tuple[str, ...], Parameter(name="--set", negative="", help="Any setting, as name=value; may be repeated.")
    ] = ()

    def load(self, **further: Any) -> LoadedSettings:
        """Return the settings; `further` are flags of the command itself.

        Raises:
            InvalidSettingError: see `headgate.config.load_settings`.
        """
        campaign, file = self._campaign_and_file()
        if self.environments is not None and not self.environments.strip(" ,"):
            raise InvalidSettingError(
                f"--environments names none (got {self.environments!r})",
                next_step="Name some, comma separated, or leave the option out; `headgate environments` lists them.",
            )
        flags: dict[str, Any] = {
            "roster": self.roster,
            "environments": self.environments,
            "store": self.store,
            "journal": self.journal,
            "campaign": campaign,
            "num_evaluation_workers": self.workers,
            **further,
        }
        for pair in self.set:
            name, equals, value = pair.partition("=")
            if not equals:
                raise InvalidSettingError(f"--set takes name=value (got {pair!r})")
            flags[name.strip()] = value
        return load_settings(flags, environ=os.environ, file=file)

    def _campaign_and_file(self) -> tuple[str | None, Path | None]:
        """Return the campaign's name and the file of settings: `--campaign` takes either."""
        if self.campaign is None or not self.campaign.endswith((".yaml", ".yml")):
            return self.campaign, self.config
        if self.config is not None:
            raise InvalidSettingError(
                f"--campaign {self.campaign} and --config {self.config} are two files of settings",
                next_step="Give one of them; the other's settings can be given by --set name=value.",
            )
        return None, Path(self.campaign)
