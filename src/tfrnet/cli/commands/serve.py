"""`tfrnet serve`: deletion requests and completions over HTTP, on one live model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tfrnet.cli import options as opt
from tfrnet.cli.lists import names
from tfrnet.cli.material import Material, read_material
from tfrnet.cli.opening import load, model_name, open_session
from tfrnet.cli.output import Output
from tfrnet.core.errors import InputError

if TYPE_CHECKING:
    from tfrnet.serve.log import Log
    from tfrnet.serve.service import Service, ServiceOptions

_LOCAL = ("127.0.0.1", "localhost", "::1")

# What a replica makes use of; the other options are about applying requests.
_OF_A_REPLICA = {
    *("follow", "model", "name", "dtype", "device", "trust_remote_code"),
    *("host", "port", "tokens", "root_path", "grace"),
    *("max_batch", "max_waiting", "max_connections", "max_body", "rate"),
}


def command(
    context: typer.Context,
    retain: opt.RetainOrOwn = None,
    state: opt.State = opt.DEFAULT_STATE,
    model: opt.Model = None,
    follow: Annotated[
        Path | None,
        typer.Option(
            help="Run as a read-only replica: answer completions from the state in this folder, "
            "which another process writes.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    tokens: Annotated[
        Path | None,
        typer.Option(
            help="File of tokens, made with 'tfrnet token add'. Without it everybody on this "
            "machine may do everything, and no other machine can connect.",
            show_default=False,
        ),
    ] = None,
    approve: Annotated[
        bool,
        typer.Option(
            "--approve",
            help="Hold every request that comes from now on until somebody approves it.",
        ),
    ] = False,
    name: Annotated[
        str, typer.Option(help="Name of the model for clients. Default: its own.")
    ] = "",
    root_path: Annotated[
        str, typer.Option(help="Path under which a proxy serves it, such as /tfrnet.")
    ] = "",
    on_commit: Annotated[
        str | None,
        typer.Option(
            help="Command to run after every commit, with TFRNET_STATE and TFRNET_GENERATION set.",
            show_default=False,
        ),
    ] = None,
    queue: Annotated[
        Path | None,
        typer.Option(help="Folder of the queue. Default: STATE-service.", show_default=False),
    ] = None,
    queue_key: Annotated[
        Path | None,
        typer.Option(
            help="File with the key that encrypts the words of waiting requests; made if missing. "
            "Default: a file in the queue's folder.",
            show_default=False,
        ),
    ] = None,
    webhook_hosts: Annotated[
        str,
        typer.Option(
            help="Hosts whose webhooks may use plain http or a private network, separated by "
            "commas."
        ),
    ] = "",
    max_queue: Annotated[int, typer.Option(min=1, help="Requests that may wait.")] = 10_000,
    max_batch: Annotated[int, typer.Option(min=1, help="Completions generated at once.")] = 16,
    max_waiting: Annotated[int, typer.Option(min=1, help="Completions that may wait.")] = 256,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections at once.")] = 1000,
    max_body: Annotated[int, typer.Option(min=1000, help="Largest call, in bytes.")] = 1 << 20,
    rate: Annotated[
        float, typer.Option(min=0.1, help="Calls per second that one caller may make.")
    ] = 100.0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds to finish the current request when stopped.")
    ] = 30.0,
    guard: opt.Guard = None,
    retire_guard: opt.RetireGuard = 0,
    holdout: opt.Holdout = None,
    no_audit: opt.NoAudit = False,
    method: opt.Method = None,
    preset: opt.Preset = None,
    overrides: opt.Set = None,
    seed: opt.Seed = None,
    dtype: opt.Dtype = "auto",
    device: opt.Device = "auto",
    trust_remote_code: opt.TrustRemoteCode = False,
    batch_size: opt.BatchSize = None,
    keep: opt.Keep = None,
    key: opt.Key = None,
    gradient_checkpointing: opt.Checkpointing = False,
) -> int:
    """Serve a model that forgets on request: an API, completions for OpenAI's clients, a dashboard.

    Requests go into a queue on disk and are applied one after another, as by 'tfrnet run'.
    Meanwhile completions go on with the last committed mask. Stop it with Ctrl-C or SIGTERM; the
    same command continues. See docs/service.md.
    """
    from tfrnet.serve.log import Log

    # First: reading the data may warn of something.
    log = Log()
    log.take_warnings()
    if follow:
        _refuse_for_a_replica(context)
    session_options = opt.SessionOptions(
        retain=retain,
        state=state,
        model=model,
        guard=guard,
        retire_guard=retire_guard,
        holdout=holdout,
        no_audit=no_audit,
        method=method,
        preset=preset,
        overrides=overrides,
        seed=seed,
        dtype=dtype,
        device=device,
        trust_remote_code=trust_remote_code,
        batch_size=batch_size,
        keep=keep,
        key=key,
        gradient_checkpointing=gradient_checkpointing,
    )
    # Before the packages of the service are imported, which takes seconds.
    given = read_material(session_options, [])
    try:
        from tfrnet.serve.gate import Limits
        from tfrnet.serve.server import bound_socket, make_server, run
        from tfrnet.serve.service import ServiceOptions
        from tfrnet.serve.tokens import read_tokens
    except ImportError as error:
        raise InputError(
            f"'tfrnet serve' needs the {error.name} package: pip install 'tfrnet[serve]'"
        ) from None
    if tokens is None and host not in _LOCAL:
        raise InputError(
            f"--host {host} is open to other machines, so it needs --tokens FILE; "
            "'tfrnet token add' makes one"
        )
    if tokens:
        read_tokens(tokens)
    output = _LoggedOutput(log)
    service_options = ServiceOptions(
        name=name,
        approve=approve,
        most_queued=max_queue,
        rows=max_batch,
        most_waiting=max_waiting,
        queue_folder=queue,
        key_file=queue_key,
        signing_key=key,
        webhook_hosts=names(webhook_hosts),
        on_commit=on_commit,
        grace=grace,
        tokens=tokens,
        local_only=host in _LOCAL,
        limits=Limits(body=max_body, rate=rate, burst=max(1, round(3 * rate))),
    )
    listening = bound_socket(host, port)
    if follow:
        from tfrnet.serve.service import open_replica
        from tfrnet.state.store import StateStore

        store = StateStore.open(follow)
        loaded = load(
            *(model_name(model, store), store.manifest.dtype(dtype), device, output),
            trust_remote_code=trust_remote_code,
        )
        service = open_replica(loaded, follow, service_options, log)
    else:
        service = _primary(session_options, given, service_options, output, log)
    server = make_server(service, max_connections, root_path.rstrip("/"))
    address = _address(host, listening.getsockname()[1], root_path.rstrip("/"))
    # Whoever reads the address may ask at once.
    listening.listen(server.config.backlog)
    _greet(output, address, service)
    run(server, listening)
    return 0


def _refuse_for_a_replica(context: typer.Context) -> None:
    """Raise if options were given that a replica would do nothing about."""
    given = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name not in _OF_A_REPLICA and _was_given(context, str(parameter.name))
    ]
    if given:
        raise InputError(
            f"a replica (--follow) only answers completions, so it takes no {', '.join(given)}"
        )


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _address(host: str, port: int, path: str) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"


class _LoggedOutput(Output):
    """Writes to the log what other commands remark on stderr."""

    def __init__(self, log: Log) -> None:
        super().__init__(as_json=False)
        self._log = log

    def note(self, line: str) -> None:
        """Write a remark down."""
        self._log.say("note", detail=line)

    def warn(self, line: str) -> None:
        """Write a warning down."""
        self._log.warn(line)


def _primary(
    options: opt.SessionOptions,
    given: Material,
    serving: ServiceOptions,
    output: Output,
    log: Log,
) -> Service:
    from tfrnet.core.team import SOLO
    from tfrnet.serve.service import open_primary, refuse_without_mask

    if options.method:
        refuse_without_mask(options.method)
    session = open_session(options, SOLO, given, output, may_be_done=True)
    try:
        return open_primary(session, serving, log)
    except BaseException as error:
        # As at the end of a with-block: a new state that nothing was tried on goes.
        session.__exit__(type(error), error, error.__traceback__)
        raise


def _greet(output: Output, address: str, service: Service) -> None:
    header = " -H 'Authorization: Bearer TOKEN'" if service.tokens else ""
    output.say(f"dashboard    {address}/")
    output.say(
        f"try          curl {address}/v1/completions{header} -H 'Content-Type: application/json' "
        """-d '{"prompt": "The capital of France is", "temperature": 0}'"""
    )
