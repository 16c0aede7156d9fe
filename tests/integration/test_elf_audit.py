"""Every rule of the audit, each broken by a small engine that is otherwise in order."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sdk_tools.build.elf_audit import MODULE, audit_engine, declared_functions
from sdk_tools.build.isa_scan import scan_code
from sdk_tools.build.targets import BuildOptions
from sdk_tools.errors import BuildError

CC = "aarch64-linux-gnu-gcc"
ARM64 = BuildOptions("arm64-linux")
HEADER = "#define SYRINX_API\n// SYRINX_API void syrinx_gone(void);\nSYRINX_API const char * syrinx_version(void);\n"
LINK = ["-shared", "-nostartfiles", "-fPIC", "-O1", "-Wl,-z,max-page-size=16384", "-s"]
MODULE_CODE = "int ggml_backend_score(void) { return 1; }\nint ggml_backend_init(void) { return 0; }\n"
DOT = '__asm__(".arch armv8.2-a+dotprod\\n.text\\n.rept 2\\nsdot v0.4s, v1.16b, v2.16b\\n.endr\\n");\n'
VERSION = 'const char * syrinx_version(void) { return "1"; }\n'


def compile_library(path: Path, code: str, *flags: str, soname: str | None = None) -> Path:
    soname = path.name if soname is None else soname
    command = [
        CC,
        "-x",
        "c",
        "-",
        "-x",
        "none",
        "-o",
        str(path),
        *LINK,
        *([f"-Wl,-soname,{soname}"] if soname else []),
        *flags,
    ]
    subprocess.run(command, input=code, text=True, check=True, capture_output=True)
    return path


def compile_program(path: Path, *flags: str) -> Path:
    command = [CC, "-x", "c", "-", "-x", "none", "-o", str(path), "-Wl,-z,max-page-size=16384", *flags]
    subprocess.run(command, input="int main(void) { return 0; }", text=True, check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    for folder in ("lib", "bin", "include/syrinx"):
        (root / folder).mkdir(parents=True)
    (root / "include" / "syrinx" / "syrinx.h").write_text(HEADER)
    base = compile_library(root / "lib" / "libggml-base.so", "int ggml_init(void) { return 0; }")
    compile_library(root / "lib" / "libsyrinx.so", VERSION, str(base), "-Wl,--no-as-needed", "-lm")
    compile_library(root / "lib" / "libggml-cpu-armv8.0.so", MODULE_CODE)
    compile_library(root / "lib" / "libggml-cpu-armv8.2-dotprod.so", MODULE_CODE + DOT)
    compile_program(root / "bin" / "syrinx", "-s")
    return root


@pytest.fixture
def engine(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "engine"))


def refuse(engine: Path, wanted: str, options: BuildOptions = ARM64) -> None:
    with pytest.raises(BuildError, match="does not pass the audit") as caught:
        audit_engine(engine, options)
    assert re.search(wanted, caught.value.what), caught.value.what
    assert caught.value.what.count("\n") == 1, f"one finding was planted: {caught.value.what}"
    assert caught.value.exit_code == 5


def test_a_sound_engine_passes(engine: Path) -> None:
    audit_engine(engine, ARM64)


def test_needed_of_neither_system_nor_package(engine: Path, tmp_path: Path) -> None:
    other = compile_library(tmp_path / "libomp.so", "int omp;")
    lib = engine / "lib" / "libsyrinx.so"
    compile_library(lib, VERSION, "-Wl,--no-as-needed", str(other))
    refuse(engine, r"lib/libsyrinx\.so: NEEDED: libomp\.so is neither")
    shutil.copy(other, engine / "lib")
    with pytest.raises(BuildError) as caught:
        audit_engine(engine, ARM64)
    assert "NEEDED" not in caught.value.what  # it is packaged now; that it exports what it likes is another finding


def test_the_cxx_runtime_is_not_the_systems_on_a_device(engine: Path) -> None:
    compile_program(engine / "bin" / "syrinx", "-s", "-Wl,--no-as-needed", "-lstdc++")
    refuse(engine, r"bin/syrinx: NEEDED: libstdc\+\+\.so\.6")


@pytest.mark.parametrize("soname", ["", "libsyrinx.so.0", "libother.so"])
def test_soname(engine: Path, soname: str) -> None:
    compile_library(engine / "lib" / "libsyrinx.so", VERSION, soname=soname)
    refuse(engine, f"lib/libsyrinx.so: SONAME: it is '{soname}', not 'libsyrinx.so'")


def test_versioned_file_name(engine: Path) -> None:
    compile_library(engine / "lib" / "libsyrinx.so.0", VERSION)
    refuse(engine, r"SONAME: the file is not named lib\*\.so")


def test_small_pages(engine: Path) -> None:
    compile_library(engine / "lib" / "libsyrinx.so", VERSION, "-Wl,-z,max-page-size=4096")
    refuse(engine, r"lib/libsyrinx\.so: platform: a LOAD segment is aligned to 0x1000\. Link with -Wl,-z,max-page-size")


def test_one_export_too_many_or_too_few(engine: Path) -> None:
    lib = engine / "lib" / "libsyrinx.so"
    compile_library(lib, VERSION + "int helper(void) { return 1; }")
    refuse(engine, r"lib/libsyrinx\.so: exports: exports beyond its API: helper\.")
    compile_library(lib, VERSION + "int syrinx_gone(void) { return 1; }")
    refuse(engine, "exports beyond its API: syrinx_gone")
    compile_library(lib, VERSION, "-fvisibility=hidden")
    refuse(engine, "does not export: syrinx_version")


def test_exports_of_modules_and_of_ggml_base(engine: Path) -> None:
    module = engine / "lib" / "libggml-cpu-armv8.0.so"
    compile_library(module, "int ggml_backend_init(void) { return 0; }")
    refuse(engine, r"armv8\.0\.so: exports: does not export: ggml_backend_score")
    compile_library(module, MODULE_CODE + "int ggml_cpu_extra(void) { return 0; }")
    refuse(engine, r"armv8\.0\.so: exports: exports beyond its API: ggml_cpu_extra")
    compile_library(module, MODULE_CODE)
    compile_library(engine / "lib" / "libggml-base.so", "int ggml_init(void) { return 0; }\nint _ZN4leakEv;")
    refuse(engine, r"libggml-base\.so: exports: exports beyond its API: _ZN4leakEv")


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
def test_rpath(engine: Path, tags: str) -> None:
    compile_program(engine / "bin" / "syrinx", "-s", "-Wl,-rpath,/home/me/lib", f"-Wl,{tags}")
    refuse(engine, r"bin/syrinx: RPATH: it holds '/home/me/lib'")


def test_text_relocations(engine: Path) -> None:
    code = f'{VERSION}__asm__(".text\\n.xword syrinx_version\\n");'
    compile_library(engine / "lib" / "libsyrinx.so", code, "-Wl,-z,notext")
    refuse(engine, r"lib/libsyrinx\.so: platform: it has text relocations")


def test_not_position_independent(engine: Path) -> None:
    compile_program(engine / "bin" / "syrinx", "-s", "-no-pie")
    refuse(engine, "bin/syrinx: platform: its type is ET_EXEC")


def test_symbols_and_debug_information(engine: Path) -> None:
    command = [CC, "-x", "c", "-", "-o", str(engine / "bin" / "syrinx"), "-g", "-Wl,-z,max-page-size=16384"]
    subprocess.run(command, input="int main(void) { return 0; }", text=True, check=True)
    refuse(engine, r"bin/syrinx: stripped: it holds \.debug_abbrev, .*\.symtab")
    audit_engine(engine, BuildOptions("arm64-linux", variant="debug"))


def test_another_machines_program(engine: Path) -> None:
    refuse_all = [engine / "bin" / "syrinx"]
    subprocess.run(["cc", "-x", "c", "-", "-s", "-Wl,-z,max-page-size=16384", "-o", str(refuse_all[0])],
                   input="int main(void) { return 0; }", text=True, check=True)  # fmt: skip
    refuse(engine, "bin/syrinx: platform: it is for EM_X86_64, not EM_AARCH64")


def test_a_file_that_is_no_elf(engine: Path) -> None:
    (engine / "lib" / "readme.txt").write_text("hello")
    refuse(engine, r"lib/readme\.txt: ELF: it cannot be read")


def test_a_cut_library(engine: Path) -> None:
    lib = engine / "lib" / "libsyrinx.so"
    lib.write_bytes(lib.read_bytes()[:200])
    refuse(engine, r"lib/libsyrinx\.so: ")


def test_an_empty_engine(engine: Path) -> None:
    shutil.rmtree(engine / "lib")
    shutil.rmtree(engine / "bin")
    refuse(engine, "there is no library or program")


# -------------------------------------------------------------------------------------------------------- instructions


@pytest.mark.parametrize("name", ["lib/libsyrinx.so", "lib/libggml-base.so", "lib/libggml-cpu-armv8.0.so"])
def test_an_instruction_above_the_base_level(engine: Path, name: str) -> None:
    """Patched into the code: the word of a function's first instruction becomes an sdot."""
    patch_first_instruction(engine / name, 0x4E829420)
    refuse(
        engine,
        rf"{re.escape(name)}: instructions: it holds 1 dotprod instructions, the first at 0x[0-9a-f]+ \(4e829420\)",
    )


@pytest.mark.parametrize(("word", "extension"), [(0x4E82A420, "i8mm"), (0x04A00000, "sve"), (0x80800000, "sme")])
def test_a_level_may_not_use_what_is_above_it(engine: Path, word: int, extension: str) -> None:
    module = engine / "lib" / "libggml-cpu-armv8.2-dotprod.so"
    patch_first_instruction(module, word)
    refuse(engine, rf"dotprod\.so: instructions: it holds 1 {extension} instructions")


def test_a_level_without_its_own_instructions(engine: Path) -> None:
    compile_library(engine / "lib" / "libggml-cpu-armv8.2-dotprod.so", MODULE_CODE)
    refuse(engine, "instructions: it holds no dotprod instruction")


def test_an_unknown_level(engine: Path) -> None:
    compile_library(engine / "lib" / "libggml-cpu-armv10.so", MODULE_CODE)
    refuse(engine, "the level 'armv10' is unknown")


def test_the_one_word_of_the_unwinders_is_overlooked(engine: Path) -> None:
    patch_first_instruction(engine / "lib" / "libsyrinx.so", 0x04E0E3E0)
    audit_engine(engine, ARM64)


def patch_first_instruction(path: Path, word: int) -> None:
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        offset = ELFFile(file).get_section_by_name(".text")["sh_offset"]
    data = bytearray(path.read_bytes())
    data[offset : offset + 4] = word.to_bytes(4, "little")
    path.write_bytes(data)


# mnemonic -> extension, for what the disassembler prints; operands tell the rest apart.
MNEMONICS = {
    "dotprod": {"sdot", "udot"},
    "i8mm": {"smmla", "ummla", "usmmla", "usdot", "sudot"},
    "bf16": {"bfdot", "bfmmla", "bfmlalb", "bfmlalt"},
}
HALF = re.compile(r"\bv\d+\.[48]h")
HALF_ARITHMETIC = re.compile(
    r"f(add|sub|mulx?|ml[as]|div|maxn?m?|minn?m?|abs|neg|sqrt|recp[es]|rsqrt[es]|cm(eq|g[et]|l[et])|acg[et]|abd|rint\w)"
)
SVE = re.compile(
    r"((cnt|inc|dec|uqinc|sqinc|uqdec|sqdec)[bhwd]|rdvl|add[vp]l|while\w+|ptest|pfalse|setffr|rdffr|wrffr|ctermeq|ctermne)"
)


def classify(mnemonic: str, operands: str) -> str | None:
    if mnemonic in ("smstart", "smstop") or re.search(r"\bza\d*[.hv\[]", operands):
        return "sme"
    if re.search(r"\b(z\d+|p\d+)\b[./,]", operands) or SVE.fullmatch(mnemonic):
        return "sve"
    for extension, names in MNEMONICS.items():
        if mnemonic in names:
            return extension
    return "fp16" if HALF.search(operands) and HALF_ARITHMETIC.fullmatch(mnemonic) else None


def disassemble(path: Path) -> Iterator[tuple[int, str, str]]:
    """Of a file that holds nothing but machine code: address, mnemonic, operands."""
    command = ["aarch64-linux-gnu-objdump", "-D", "-b", "binary", "-m", "aarch64", "--no-show-raw-insn", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for address, mnemonic, operands in re.findall(r"^\s*([0-9a-f]+):\t(\S+)[ \t]*([^\n]*)", text, re.MULTILINE):
        yield int(address, 16), mnemonic, operands.split("//")[0]


def test_the_masks_agree_with_the_disassembler_on_random_words(tmp_path: Path) -> None:
    """Random words near each encoding, and anywhere: what objdump calls by these names, the masks call by them too."""
    generator = np.random.default_rng(7)
    words = generator.integers(0, 1 << 32, 30_000, dtype=np.uint64).astype("<u4")
    bases = [0x0E809400, 0x0F80E000, 0x4E80A400, 0x4E80AC00, 0x0E809C00, 0x0F80F000, 0x0F00F000, 0x0E400400, 0x0E780800]
    bases += [0x2E40FC00, 0x0F40F000, 0x6E40EC00, 0x2EC0FC00, 0x0F001000, 0x0F009000, 0x80800000, 0x04A00000]
    near = generator.choice(np.array(bases, dtype="<u4"), 30_000) ^ (
        generator.integers(0, 1 << 32, 30_000, dtype=np.uint64).astype("<u4") & np.uint32(0x601F0BFF)
    )
    code = np.concatenate([words, near.astype("<u4")])
    code.tofile(tmp_path / "words")
    seen = dict.fromkeys(("dotprod", "i8mm", "bf16", "fp16", "sve", "sme"), 0)
    for address, mnemonic, operands in disassemble(tmp_path / "words"):
        wanted = classify(mnemonic, operands)
        found = scan_code(code[address // 4 : address // 4 + 1].tobytes(), address)
        if wanted is None and mnemonic != ".inst":  # known to objdump, and none of ours; SVE and SME are whole ranges
            halves = HALF.search(operands) and mnemonic[0] in "fsu" and mnemonic not in ("fcvtl", "fcvtn")
            strangers = set(found) - {"sve", "sme", "fp16" if halves else ""}
            assert not strangers, f"{code[address // 4]:08x} {mnemonic} {operands} {found}"
        if wanted:
            seen[wanted] += 1
            assert wanted in found or (wanted == "sve" and "sme" in found), (
                f"{code[address // 4]:08x} {mnemonic} {operands}"
            )
    assert min(seen.values()) > 100, seen


def test_the_header_that_is_shipped_is_read() -> None:
    names = declared_functions(Path(__file__).parents[2] / "native" / "include" / "syrinx" / "syrinx.h")
    assert {"syrinx_version", "syrinx_model_open", "syrinx_engine_close"} < names
    assert MODULE.fullmatch("libggml-cpu-armv8.2-i8mm.so")
