"""`build`: the engine for one platform, or its native tests and fuzz targets."""

from __future__ import annotations

from pathlib import Path

import click

from sdk_tools.build import checks, driver
from sdk_tools.build.targets import TARGETS, BuildOptions, Sanitizer, Variant
from sdk_tools.cli.options import examples, json_option, llama_cpp_dir_option
from sdk_tools.cli.output import format_bytes, print_json, print_table
from sdk_tools.errors import UsageError
from sdk_tools.progress import make_reporter

_EPILOG = examples(
    "python -m sdk_tools build                         # into out/host",
    "python -m sdk_tools build --abi arm64 --ndk ~/Android/Sdk/ndk/27.2.12479018",
    "python -m sdk_tools build --abi arm64-linux       # Debian's cross compiler, no NDK",
    "python -m sdk_tools build --native-cpu --out /tmp/engine",
    "python -m sdk_tools build --tests --sanitize address",
    "python -m sdk_tools build --fuzz 600",
)


@click.command(epilog=_EPILOG, short_help="Build the engine for a target, or run its native tests.")
@click.option("--abi", default="host", show_default=True, metavar="NAME", help=f"One of: {', '.join(TARGETS)}.")
@click.option("--out", type=click.Path(path_type=Path), help="The engine folder [default: out/NAME].")
@click.option(
    "--ndk",
    type=click.Path(path_type=Path, file_okay=False),
    help="Android NDK, r26 or newer [default: $ANDROID_NDK_HOME, $ANDROID_NDK_ROOT, the newest of the Android SDK].",
)
@click.option("--variant", type=click.Choice(["release", "debug"]), default="release", show_default=True)
@click.option("--native-cpu", is_flag=True, help="Compile for exactly this CPU; the result runs nowhere else.")
@click.option("--sanitize", type=click.Choice(["address", "thread"]), help="Instrument our code (ASan+UBSan or TSan).")
@click.option("--tests", is_flag=True, help="Build and run the native tests; no engine folder is written.")
@click.option("--fuzz", type=click.IntRange(min=1), metavar="SECONDS", help="Build and run every fuzz target as long.")
@click.option("--jobs", type=int, help="Compilers at once [default: as many as processors and memory allow].")
@llama_cpp_dir_option
@json_option
def command(
    abi: str,
    out: Path | None,
    ndk: Path | None,
    variant: Variant,
    native_cpu: bool,
    sanitize: Sanitizer | None,
    tests: bool,
    fuzz: int | None,
    jobs: int | None,
    llama_cpp_dir: Path | None,
    as_json: bool,
) -> None:
    """Build the engine: libraries, headers, command line and manifest.json, audited before it is installed.

    llama.cpp is fetched and compiled once per user and kept in a cache outside the checkout; after a change in
    native/ only our own code is compiled again.
    """
    if (tests or fuzz) and out:
        raise UsageError("--out has no use with --tests or --fuzz.", "They write no engine folder.")
    if fuzz and (tests or sanitize):
        raise UsageError("--fuzz stands alone.", "Fuzz targets always run with ASan and UBSan.")
    options = BuildOptions(abi=abi, variant=variant, native_cpu=native_cpu, sanitize=sanitize or "")
    reporter = make_reporter()
    if tests or fuzz:
        shop = driver.open_workshop(options, llama_cpp_dir=llama_cpp_dir, ndk=ndk, jobs=jobs, reporter=reporter)
        report = checks.run_fuzzers(shop, fuzz) if fuzz else checks.run_native_tests(shop)
        if as_json:
            print_json(report.to_json())
        else:
            click.echo(report.summary())
        return
    result = driver.build_engine(options, out=out, llama_cpp_dir=llama_cpp_dir, ndk=ndk, jobs=jobs, reporter=reporter)
    if as_json:
        print_json(
            {
                "schema": 1,
                "engine": str(result.engine.root),
                "build_dir": str(result.build_dir),
                "base_was_cached": result.base_was_cached,
                "seconds": result.seconds,
                "manifest": result.engine.manifest,
            }
        )
    else:
        _print_result(result)


def _print_result(result: driver.BuildResult) -> None:
    manifest = result.engine.manifest
    files = manifest["files"]
    assert isinstance(files, list)
    rows = [(entry["path"], format_bytes(entry["size"]), entry["sha256"][:16]) for entry in files]
    print_table(f"Engine in {result.engine.root}", ("file", "size", "SHA-256"), rows)
    base = "from the cache" if result.base_was_cached else f"built in {result.seconds['base']:.0f} s"
    click.echo(f"llama.cpp {base}; our code in {result.seconds['native']:.1f} s.")
    ship_bytes = manifest["ship_bytes"]
    assert isinstance(ship_bytes, int)
    click.echo(f"An app ships {format_bytes(ship_bytes)} of libraries (lib/*.so).")
