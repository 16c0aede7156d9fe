"""The last check of a build: every library and program of an engine must be what its platform can load and what we
promise to ship. One that is not fails the build before anything is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from sdk_tools.build.isa_scan import EXTENSIONS, Use, scan_code
from sdk_tools.build.targets import BuildOptions
from sdk_tools.errors import BuildError

MODULE = re.compile(r"libggml-cpu-(.+)\.so")
_PAGE = 1 << 14
_SHOWN = 20

# What each arm64 level may use, and the one extension without which it would be no level of its own. (ggml's own
# kernels have no SME code, so that level may do without.)
_LEVELS: dict[str, tuple[frozenset[str], str]] = {
    "armv8.0": (frozenset(), ""),
    "armv8.2-dotprod": (frozenset({"fp16", "dotprod"}), "dotprod"),
    "armv8.2-i8mm": (frozenset({"fp16", "dotprod", "i8mm"}), "i8mm"),
    "armv9.0-sve2": (frozenset({"fp16", "dotprod", "i8mm", "sve"}), "sve"),
    "armv9.2-sme": (frozenset(EXTENSIONS), "sve"),
}

_ANDROID = ("libc", "libm", "libdl", "liblog")
_LINUX = ("libc", "libm", "libdl", "libpthread", "librt", r"ld-linux[-a-z0-9]*")
# The host has the compiler that built for it, and so its runtimes.
_HOST = (*_LINUX, r"libstdc\+\+", r"libc\+\+", "libgcc_s", r"lib(a|t|ub|l)san")

_MODULE_EXPORTS = frozenset({"ggml_backend_init", "ggml_backend_score"})
_BASE_EXPORTS = re.compile(r"(ggml|gguf|quantize|dequantize)_\w+")
_DECLARED = re.compile(r"\bSYRINX_API\b[\w\s*]+?\b(syrinx_\w+)\s*\(")


@dataclass(frozen=True)
class Policy:
    """What a platform demands. system: what NEEDED may name beside the package's own libraries, without suffix."""

    system: re.Pattern[str]
    machine: str = ""  # e_machine; "" is not checked
    for_devices: bool = False  # 16 KB pages, instruction-set levels, no RPATH at all
    stripped: bool = True

    @staticmethod
    def of(options: BuildOptions) -> Policy:
        target = options.target
        names = _HOST if target.runs_here else _ANDROID if target.android_abi else _LINUX
        suffix = r"\.so" if target.android_abi else r"\.so(\.[0-9]+)?"
        return Policy(
            system=re.compile(f"({'|'.join(names)}){suffix}"),
            machine="" if target.runs_here else "EM_X86_64" if target.abi == "x86_64" else "EM_AARCH64",
            for_devices=not target.runs_here,
            stripped=options.variant == "release" and not options.sanitize,
        )


@dataclass(frozen=True)
class Elf:
    """What the rules look at in one file."""

    name: str
    machine: str
    kind: str
    needed: tuple[str, ...]
    soname: str
    rpaths: tuple[str, ...]
    text_relocations: bool
    alignments: tuple[int, ...]  # of the LOAD segments
    sections: frozenset[str]
    exports: frozenset[str]
    uses: dict[str, Use] = field(default_factory=dict)  # arm64: the extensions in the executable sections

    @property
    def is_library(self) -> bool:
        return self.name.startswith("lib/")


@dataclass(frozen=True)
class Finding:
    """One broken rule: the file, the rule's name, what was found, and what to do."""

    file: str
    rule: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}: {self.rule}: {self.what}. {self.advice}"


def audit_engine(root: Path, options: BuildOptions) -> None:
    """Checks every file of lib/ and bin/ of the engine folder `root`. Errors: BuildError, naming every finding."""
    policy = Policy.of(options)
    paths = sorted(path for folder in ("lib", "bin") for path in (root / folder).rglob("*") if path.is_file())
    packaged = frozenset(path.name for path in paths if path.parent.name == "lib")
    api = declared_functions(root / "include" / "syrinx" / "syrinx.h")
    findings: list[Finding] = []
    for path in paths:
        name = path.relative_to(root).as_posix()
        try:
            elf = read_elf(path, name)
        except (ELFError, OSError, UnicodeDecodeError) as error:
            findings.append(Finding(name, "ELF", f"it cannot be read: {error}", "Only libraries and programs go there"))
            continue
        findings += _check(elf, policy, packaged, api)
    if not paths:
        findings.append(Finding("lib/", "ELF", "there is no library or program", "See native/CMakeLists.txt"))
    if findings:
        shown = "\n".join(f"  {finding}" for finding in findings[:_SHOWN])
        more = f"\n  and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        raise BuildError(
            f"What was built for --abi {options.abi} does not pass the audit:\n{shown}{more}",
            "Nothing was installed; an engine that was there before is as it was. docs/android-build.md has the rules.",
        )


def declared_functions(header: Path) -> frozenset[str]:
    """The functions that syrinx.h declares. Errors: BuildError (none, or no such file)."""
    try:
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    except OSError as error:
        raise BuildError(f"The engine's header {header} cannot be read: {error.strerror}.") from error
    found = frozenset(_DECLARED.findall(code))
    if not found:
        raise BuildError(f"{header} declares no function with SYRINX_API.")
    return found


def read_elf(path: Path, name: str) -> Elf:
    """Errors: ELFError, OSError."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        tags = list(dynamic.iter_tags()) if dynamic else []
        flags = next((tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"), 0)
        is_arm64 = elf["e_machine"] == "EM_AARCH64"
        return Elf(
            name=name,
            machine=elf["e_machine"],
            kind=elf["e_type"],
            needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            soname=next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), ""),
            rpaths=tuple(
                tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
                for tag in tags
                if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")
            ),
            text_relocations=bool(flags & 4) or any(tag.entry.d_tag == "DT_TEXTREL" for tag in tags),
            alignments=tuple(segment["p_align"] for segment in elf.iter_segments("PT_LOAD")),
            sections=frozenset(section.name for section in elf.iter_sections()),
            exports=frozenset(_exports(elf)),
            uses=_merge_uses(elf) if is_arm64 else {},
        )


def _exports(elf: ELFFile) -> Iterator[str]:
    table = elf.get_section_by_name(".dynsym")
    for symbol in table.iter_symbols() if table else ():
        visible = symbol["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED")
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL" and visible and symbol.name:
            yield str(symbol.name)


def _merge_uses(elf: ELFFile) -> dict[str, Use]:
    merged: dict[str, Use] = {}
    for section in elf.iter_sections():
        if not section["sh_flags"] & 4 or section["sh_type"] == "SHT_NOBITS":  # 4: SHF_EXECINSTR
            continue
        for name, use in scan_code(section.data(), section["sh_addr"]).items():
            first = merged.get(name)
            merged[name] = Use(name, use.count + first.count, first.address, first.word) if first else use
    return merged


def _check(elf: Elf, policy: Policy, packaged: frozenset[str], api: frozenset[str]) -> Iterator[Finding]:
    for rule, broken in (
        ("platform", _check_platform(elf, policy)),
        ("NEEDED", _check_needed(elf, policy, packaged)),
        ("SONAME", _check_soname(elf)),
        ("RPATH", _check_rpath(elf, policy)),
        ("exports", _check_exports(elf, api)),
        ("stripped", _check_stripped(elf, policy)),
        ("instructions", _check_instructions(elf, policy)),
    ):
        for what, advice in broken:
            yield Finding(elf.name, rule, what, advice)


Broken = Iterator[tuple[str, str]]


def _check_platform(elf: Elf, policy: Policy) -> Broken:
    if policy.machine and elf.machine != policy.machine:
        yield f"it is for {elf.machine}, not {policy.machine}", "Another compiler than the target's made it"
    if elf.kind != "ET_DYN":
        yield f"its type is {elf.kind}", "Compile and link it position-independent"
    if elf.text_relocations:
        yield "it has text relocations", "Compile everything in it with -fPIC"
    if not elf.alignments:
        yield "it has no LOAD segment", "Link it as a library or program"
    bad = [align for align in elf.alignments if align < _PAGE or align % _PAGE]
    if policy.for_devices and bad:
        yield f"a LOAD segment is aligned to {bad[0]:#x}", f"Link with -Wl,-z,max-page-size={_PAGE}"


def _check_needed(elf: Elf, policy: Policy, packaged: frozenset[str]) -> Broken:
    for name in elf.needed:
        if name not in packaged and not policy.system.fullmatch(name):
            yield f"{name} is neither the system's nor in the package", "Link it statically, or package it in lib/"


def _check_soname(elf: Elf) -> Broken:
    file = elf.name.rpartition("/")[2]
    if not elf.is_library:
        return
    if not re.fullmatch(r"lib[^/]+\.so", file):
        yield f"the file is not named lib*.so: {file}", "Android installs nothing else from an app's lib folder"
    if elf.soname != file:
        yield f"it is {elf.soname!r}, not {file!r}", "Set no VERSION or SOVERSION, and OUTPUT_NAME to its file name"


def _check_rpath(elf: Elf, policy: Policy) -> Broken:
    allowed = () if policy.for_devices or elf.is_library else ("$ORIGIN/../lib",)
    for path in elf.rpaths:
        if path not in allowed:
            yield f"it holds {path!r}", "Set CMAKE_SKIP_RPATH, or INSTALL_RPATH for the host's command line"


def _check_exports(elf: Elf, api: frozenset[str]) -> Broken:
    file = elf.name.rpartition("/")[2]
    if not elf.is_library:
        return
    if file == "libggml-base.so":
        extra, missing = {name for name in elf.exports if not _BASE_EXPORTS.fullmatch(name)}, set[str]()
    else:
        wanted = _MODULE_EXPORTS if MODULE.fullmatch(file) else api
        extra, missing = set(elf.exports - wanted), set(wanted - elf.exports)
    for names, word, advice in (
        (extra, "exports beyond its API", "See its version script (.map) and -Wl,--exclude-libs,ALL"),
        (missing, "does not export", "Define it, or take it out of the header or the version script"),
    ):
        if names:
            some = ", ".join(sorted(names)[:5])
            yield f"{word}: {some}{f' and {len(names) - 5} more' if len(names) > 5 else ''}", advice


def _check_stripped(elf: Elf, policy: Policy) -> Broken:
    debris = sorted(name for name in elf.sections if name == ".symtab" or name.startswith((".debug", ".zdebug")))
    if policy.stripped and debris:
        yield f"it holds {', '.join(debris)}", "Strip it; --variant debug keeps symbols"


def _check_instructions(elf: Elf, policy: Policy) -> Broken:
    if not policy.for_devices or elf.machine != "EM_AARCH64":
        return
    if ".text" not in elf.sections:
        yield "it has no section .text to look at", "Keep the section headers"
    module = MODULE.fullmatch(elf.name.rpartition("/")[2])
    if module and module[1] not in _LEVELS:
        yield f"the level {module[1]!r} is unknown", "Say in sdk_tools/build/elf_audit.py what it may use"
        return
    allowed, needed = _LEVELS[module[1]] if module else (frozenset[str](), "")
    for name, use in elf.uses.items():
        if name not in allowed:
            where = f"--start-address={use.address:#x}"
            yield f"it holds {use}", f"Such code belongs into a higher level's module; see objdump -d {where}"
    if needed and needed not in elf.uses:
        yield f"it holds no {needed} instruction", "Its compiler flags did not arrive; see native/llama/modules.cmake"
