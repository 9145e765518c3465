"""Pushing an export to the Hugging Face hub: one commit in a new repository, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from huggingface_hub import HfApi


def refuse_taken(name: str) -> None:
    """Raise, before the work begins, if the hub cannot be reached or has the name already."""
    api = _api()
    with _clear_errors(name):
        if api.repo_exists(name):
            raise InputError(f"the hub has a model {name} already; choose another name")
        api.whoami()


def push(folder: Path, name: str, private: bool) -> str:
    """Upload a folder as a new model and return its address."""
    api = _api()
    with _clear_errors(name):
        repository = api.create_repo(name, private=private)
        try:
            api.upload_folder(
                repo_id=repository.repo_id, folder_path=folder, commit_message="Add the model"
            )
        except BaseException:
            # What holds nothing yet is ours to take away again.
            with suppress(Exception):
                api.delete_repo(repository.repo_id)
            raise
    return str(repository)


def _api() -> HfApi:
    from huggingface_hub import HfApi

    return HfApi(library_name="tfrnet")


@contextmanager
def _clear_errors(name: str) -> Iterator[None]:
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    try:
        yield
    except HFValidationError:
        raise InputError(f"{name!r} is not a valid model name on the hub; use OWNER/NAME") from None
    except LocalTokenNotFoundError:
        raise InputError(
            "you are not logged in to the hub: run 'hf auth login' or set HF_TOKEN"
        ) from None
    except OfflineModeIsEnabled:
        raise InputError("the hub is switched off by HF_HUB_OFFLINE; unset it to push") from None
    except HfHubHTTPError as error:
        raise InputError(_said(name, error)) from error
    except OSError as error:
        raise InputError(f"the hub cannot be reached: {_short(error)}") from error
    except InputError:
        raise
    except Exception as error:
        # The hub's client has had several HTTP libraries, each with errors of its own.
        if "connect" not in f"{type(error).__name__} {error}".lower():
            raise
        raise InputError(f"the hub cannot be reached: {_short(error)}") from error


def _said(name: str, error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 409:
        return f"the hub has a model {name} already; choose another name"
    if status in (401, 403):
        return f"the hub does not let you write {name}: run 'hf auth login' or set HF_TOKEN"
    return f"the hub refused {name}: {_short(error)}"


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
