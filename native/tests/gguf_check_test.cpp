#include "core/gguf_check.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/random.h"
#include "fuzz/gguf_differential.h"
#include "xxhash.h"

using namespace syrinx;

namespace {

template <typename T>
std::string raw(T value) {
    return std::string(reinterpret_cast<const char *>(&value), sizeof value);
}

std::string text(const std::string & value) { return raw<uint64_t>(value.size()) + value; }

// A key with its type and value, as bytes.
struct Key {
    std::string name;
    std::string value;
    std::string bytes() const { return text(name) + value; }
};

Key u16(const std::string & name, uint16_t value) { return {name, raw<uint32_t>(2) + raw(value)}; }
Key u32(const std::string & name, uint32_t value) { return {name, raw<uint32_t>(4) + raw(value)}; }
Key f32(const std::string & name, float value) { return {name, raw<uint32_t>(6) + raw(value)}; }
Key str(const std::string & name, const std::string & value) { return {name, raw<uint32_t>(8) + text(value)}; }

Key array(const std::string & name, uint32_t type, uint64_t n, const std::string & elements) {
    return {name, raw<uint32_t>(9) + raw(type) + raw(n) + elements};
}

template <typename T>
Key numbers(const std::string & name, uint32_t type, const std::vector<T> & values) {
    std::string elements;
    for (const T & value : values) {
        elements += raw(value);
    }
    return array(name, type, values.size(), elements);
}

Key ints(const std::string & name, const std::vector<int32_t> & values) { return numbers(name, 5, values); }

Key texts(const std::string & name, const std::vector<std::string> & values) {
    std::string elements;
    for (const std::string & value : values) {
        elements += text(value);
    }
    return array(name, 8, values.size(), elements);
}

struct TensorInfo {
    std::string name;
    std::vector<int64_t> ne;
    uint32_t type;
    uint64_t offset;
    uint64_t bytes;
};

// A small file with the keys and some of the tensors of a llama model, to be changed and written.
struct Builder {
    std::string magic = "GGUF";
    uint32_t version = 3;
    uint64_t n_keys = UINT64_MAX, n_tensors = UINT64_MAX;  // as many as there are
    uint64_t alignment = 32;
    std::vector<Key> keys = {
        str("general.architecture", "llama"),
        u32("llama.context_length", 64),
        u32("llama.embedding_length", 8),
        u32("llama.block_count", 2),
        u32("llama.feed_forward_length", 16),
        u32("llama.attention.head_count", 2),
        u32("llama.attention.head_count_kv", 1),
        f32("llama.attention.layer_norm_rms_epsilon", 1e-5f),
        str("tokenizer.ggml.model", "llama"),
        texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a"}),
        numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0, -1}),
        ints("tokenizer.ggml.token_type", {2, 3, 3, 1}),
    };
    std::vector<TensorInfo> tensors = {
        {"token_embd.weight", {8, 4}, GGML_TYPE_F32, 0, 128},
        {"blk.0.attn_norm.weight", {8}, GGML_TYPE_F32, 128, 32},
        {"output_norm.weight", {8}, GGML_TYPE_F32, 160, 32},
        {"output.weight", {8, 4}, GGML_TYPE_F16, 192, 64},
    };

    Builder & set(const Key & key) {
        for (Key & each : keys) {
            if (each.name == key.name) {
                each.value = key.value;
                return *this;
            }
        }
        keys.push_back(key);
        return *this;
    }

    Builder & drop(const std::string & name) {
        for (size_t i = 0; i < keys.size(); ++i) {
            if (keys[i].name == name) {
                keys.erase(keys.begin() + static_cast<std::ptrdiff_t>(i));
                return *this;
            }
        }
        FAIL("no key " << name);
        return *this;
    }

    // The same file for another architecture.
    Builder & rename(const std::string & architecture) {
        for (Key & each : keys) {
            if (each.name.rfind("llama.", 0) == 0) {
                each.name = architecture + each.name.substr(5);
            }
        }
        return set(str("general.architecture", architecture));
    }

    std::string header() const {
        std::string out = magic + raw(version) + raw(n_tensors == UINT64_MAX ? tensors.size() : n_tensors) +
                          raw(n_keys == UINT64_MAX ? keys.size() : n_keys);
        for (const Key & key : keys) {
            out += key.bytes();
        }
        for (const TensorInfo & tensor : tensors) {
            out += text(tensor.name) + raw(static_cast<uint32_t>(tensor.ne.size()));
            for (int64_t n : tensor.ne) {
                out += raw(n);
            }
            out += raw(tensor.type) + raw(tensor.offset);
        }
        return out;
    }

    std::string bytes() const {
        std::string out = header();
        out.resize((out.size() + alignment - 1) / alignment * alignment);
        uint64_t data = 0;
        for (const TensorInfo & tensor : tensors) {
            data = std::max(data, tensor.offset + tensor.bytes);
        }
        return out + std::string(data, 'x');
    }
};

GgufSummary check(const std::string & bytes) {
    return check_gguf(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "test.gguf");
}

GgufFile parse(const std::string & bytes) {
    return GgufFile::parse(reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size(), "test.gguf");
}

struct Refusal {
    syrinx_status status;
    std::string text;
};

template <typename Call>
Refusal refusal(const Call & call) {
    try {
        call();
    } catch (const Error & error) {
        return {error.status(), error.what()};
    }
    return {SYRINX_OK, ""};
}

void expect(const Refusal & got, syrinx_status status, const std::string & words) {
    CHECK_MESSAGE(got.status == status, got.text);
    CHECK_MESSAGE(got.text.find(words) != std::string::npos, "'" << words << "' is not in: " << got.text);
}

void expect_bytes(const std::string & bytes, syrinx_status status, const std::string & words) {
    expect(refusal([&] { check(bytes); }), status, words);
}

struct Fault {
    const char * words;  // that the error text must hold
    std::function<void(Builder &)> plant;
    syrinx_status status = SYRINX_ERR_BAD_MODEL;
};

void expect_faults(const std::vector<Fault> & faults) {
    for (const Fault & fault : faults) {
        Builder builder;
        fault.plant(builder);
        expect_bytes(builder.bytes(), fault.status, fault.words);
    }
}

// A file on disk, gone at the end.
struct TemporaryFile {
    explicit TemporaryFile(const std::string & bytes) {
        const int fd = mkstemp(path);
        REQUIRE(fd >= 0);
        REQUIRE(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
        close(fd);
    }
    ~TemporaryFile() { unlink(path); }
    char path[32] = "/tmp/syrinx-gguf-XXXXXX";
};

}  // namespace

TEST_SUITE("gguf_check") {
    TEST_CASE("a sound file is summed up as ggml reads it") {
        const std::string bytes = Builder().bytes();
        const GgufSummary summary = check(bytes);
        const uint64_t data_offset = bytes.size() - 256;
        CHECK(summary.version == 3);
        CHECK(summary.alignment == 32);
        CHECK(summary.data_offset == data_offset);
        CHECK(summary.file_size == bytes.size());
        CHECK(summary.architecture == "llama");
        CHECK(summary.header_xxh64 == XXH64(bytes.data(), data_offset, 0));
        REQUIRE(summary.tensors.size() == 4);
        CHECK(summary.tensors[3].name == "output.weight");
        CHECK(summary.tensors[3].type == GGML_TYPE_F16);
        CHECK(summary.tensors[3].n_dims == 2);
        CHECK(summary.tensors[3].ne[1] == 4);
        CHECK(summary.tensors[3].ne[3] == 1);
        CHECK(summary.tensors[3].bytes == 64);
        CHECK(differ_from_ggml(parse(bytes), bytes.data(), bytes.size()) == "");

        const TemporaryFile file(bytes);
        CHECK(check_gguf(file.path).header_xxh64 == summary.header_xxh64);
    }

    TEST_CASE("the hash is of the header, not of the weights") {
        std::string bytes = Builder().bytes();
        const uint64_t hash = check(bytes).header_xxh64;
        bytes.back() = 'y';
        CHECK(check(bytes).header_xxh64 == hash);
        CHECK(check(Builder().set(u32("llama.context_length", 65)).bytes()).header_xxh64 != hash);
    }

    TEST_CASE("sound variants are accepted") {
        const std::vector<std::function<void(Builder &)>> variants = {
            [](Builder & b) { b.version = 2; },
            [](Builder & b) { b.tensors.clear(); },  // a vocabulary on its own
            [](Builder & b) { b.tensors[0].ne = {8, 4, 1, 1}; },
            [](Builder & b) { b.tensors.push_back({"rope_freqs.weight", {}, GGML_TYPE_F32, 256, 4}); },
            [](Builder & b) { b.set(u16("split.count", 1)); },
            [](Builder & b) { b.set(ints("llama.attention.head_count", {2, 4})); },
            [](Builder & b) { b.set(u32("llama.ssm.conv_kernel", 0)); },  // not of a recurrent architecture
            [](Builder & b) { b.set(texts("tokenizer.ggml.tokens", {"<unk>", "", "\xff", "a"})); },
            [](Builder & b) { b.set(u32("tokenizer.ggml.padding_token_id", UINT32_MAX)); },  // llama.cpp drops it
            [](Builder & b) {
                b.set(str("tokenizer.ggml.model", "gpt2")).set(u32("tokenizer.ggml.bos_token_id", 1));
                b.set({"tokenizer.ggml.add_bos_token", raw<uint32_t>(7) + "\1"});
            },
            [](Builder & b) { b.set(str("tokenizer.ggml.model", "none")).drop("tokenizer.ggml.tokens"); },
            [](Builder & b) { b.set(numbers<uint64_t>("x.y", 10, {UINT64_MAX})); },
            [](Builder & b) { b.set(array("x.empty", 8, 0, "")); },
            [](Builder & b) {
                b.set(u32("general.alignment", 64)).alignment = 64;
                b.tensors.resize(2);
            },
        };
        for (size_t i = 0; i < variants.size(); ++i) {
            Builder builder;
            variants[i](builder);
            const std::string bytes = builder.bytes();
            const Refusal got = refusal([&] { check(bytes); });
            CHECK_MESSAGE(got.status == SYRINX_OK, "variant " << i << ": " << got.text);
            CHECK(differ_from_ggml(parse(bytes), bytes.data(), bytes.size()) == "");
        }
    }

    TEST_CASE("metadata is read by type") {
        Builder builder;
        builder.set(numbers<uint64_t>("a.big", 10, {1, UINT64_MAX})).set(ints("a.ints", {-1, 7}));
        builder.set({"a.bool", raw<uint32_t>(7) + "\2"}).set({"a.double", raw<uint32_t>(12) + raw(0.5)});
        const GgufFile file = parse(builder.bytes());
        CHECK(file.find("a.big")->integer(0) == 1);
        CHECK(!file.find("a.big")->integer(1));
        CHECK(file.find("a.ints")->integer(0) == -1);
        CHECK(!file.find("a.ints")->integer(2));
        CHECK(!file.find("a.ints")->real());
        CHECK(file.find("a.ints")->describe() == "array of int32");
        CHECK(file.find("a.bool")->integer() == 1);
        CHECK(file.find("a.double")->real() == 0.5);
        CHECK(*file.find("general.architecture")->text() == "llama");
        CHECK(file.find("tokenizer.ggml.tokens")->texts().at(3) == "a");
        CHECK(!file.find("tokenizer.ggml.tokens")->text());
        CHECK(!file.find("nothing"));
        CHECK(file.find_tensor("output.weight") == &file.tensors()[3]);
        CHECK(file.find_tensor("nothing") == nullptr);
    }

    TEST_CASE("what is no GGUF file is called by its name") {
        const std::string lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 270885952\n";
        const std::vector<std::pair<std::string, std::string>> files = {
            {"", "is empty"},
            {lfs, "Git LFS pointer to 270885952 bytes"},
            {"<!DOCTYPE html><html>", "a web page"},
            {"\n <HTML lang=en>", "a web page"},
            {"\xef\xbb\xbf<?xml version='1.0'?>", "a web page"},
            {"{\"error\": \"Invalid credentials\"}", "JSON text"},
            {raw<uint64_t>(20) + "{\"a\":{\"dtype\":\"F32\"}}", "safetensors"},
            {std::string("PK\3\4\0\0\0\0", 8), "zip archive"},
            {"\x80\x02}q\1", "pickle"},
            {"\x1f\x8b\x08", "gzip"},
            {std::string("\xfd"
                         "7zXZ\0",
                         6),
             "xz"},
            {"\x28\xb5\x2f\xfd", "zstd"},
            {"BZh9", "bzip2"},
            {std::string(257, 'a') + "ustar", "tar archive"},
            {"lmgg\1", "'ggml'"},
            {"tjgg\3", "'ggjt'"},
            {"algg\1", "'ggla'"},
            {std::string(4096, '\0'), "zeros where the magic should be"},
            {"G", "begins with 'G' instead of 'GGUF'"},
            {std::string("\1\2\x7f\xff", 4), "begins with '\\x01\\x02\\x7f\\xff'"},
            {"GGUF", "ends after 4 bytes"},
            {"GGUF" + raw<uint32_t>(3), "ends after 8 bytes"},
            {"GGUF" + std::string("\0\0\0\3", 4) + std::string(40, '\0'), "big-endian"},
        };
        for (const auto & [bytes, words] : files) {
            expect_bytes(bytes, SYRINX_ERR_BAD_MODEL, words);
        }
    }

    TEST_CASE("files that cannot be read are told apart") {
        const auto open = [](const std::string & path) { return refusal([&] { check_gguf(path); }); };
        const TemporaryFile file(Builder().bytes());
        expect(open("/nowhere/model.gguf"), SYRINX_ERR_NOT_FOUND, "there is no file '/nowhere/model.gguf'");
        expect(open(std::string(file.path) + "/model.gguf"), SYRINX_ERR_NOT_FOUND, "there is no file");
        expect(open(std::string(5000, 'a')), SYRINX_ERR_IO, "cannot open");
        expect(open("/tmp"), SYRINX_ERR_BAD_MODEL, "is a directory");
        expect(open("/dev/zero"), SYRINX_ERR_BAD_MODEL, "is a device");

        const std::string fifo = std::string(file.path) + ".fifo";
        REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
        expect(open(fifo), SYRINX_ERR_BAD_MODEL, "is a pipe");  // and does not wait for a writer
        unlink(fifo.c_str());

        const TemporaryFile empty("");
        expect(open(empty.path), SYRINX_ERR_BAD_MODEL, "is empty");
        if (geteuid() != 0) {  // root may read everything
            REQUIRE(chmod(file.path, 0) == 0);
            expect(open(file.path), SYRINX_ERR_IO, "Permission denied");
        }
    }

    TEST_CASE("a file cut off anywhere is refused") {
        Builder builder;
        builder.tensors.pop_back();
        const std::string bytes = builder.bytes();
        for (size_t n = 0; n < bytes.size(); ++n) {
            // A block of its own, so that AddressSanitizer sees a read behind the end.
            const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
            const Refusal got = refusal([&] { check_gguf(cut.data(), n, "test.gguf"); });
            CHECK_MESSAGE(got.status == SYRINX_ERR_BAD_MODEL, "cut off after " << n << " bytes");
        }
        expect_bytes(bytes.substr(0, bytes.size() - 5), SYRINX_ERR_BAD_MODEL,
                     "tensor 'output_norm.weight' is missing 5 of its 32 bytes");
        const std::string whole = Builder().bytes();
        expect_bytes(whole.substr(0, whole.size() - 104), SYRINX_ERR_BAD_MODEL,
                     "tensor 'blk.0.attn_norm.weight' is missing 8 of its 32 bytes");
        expect_bytes(whole.substr(0, whole.size() - 104), SYRINX_ERR_BAD_MODEL,
                     "with the tensors behind it 104 bytes are missing");
    }

    TEST_CASE("whatever a changed file passes, ggml reads in the same way") {
        const std::string sound = Builder().bytes();
        Pcg32 random(1);
        int accepted = 0, refused = 0;
        const auto look = [&](const std::string & bytes) {
            const Refusal got = refusal([&] {
                const GgufFile file = parse(bytes);
                REQUIRE(differ_from_ggml(file, bytes.data(), bytes.size()) == "");
                check_llama_rules(file);
            });
            (got.status == SYRINX_OK ? accepted : refused) += 1;
            CHECK((got.status == SYRINX_OK || got.status == SYRINX_ERR_BAD_MODEL ||
                   got.status == SYRINX_ERR_UNSUPPORTED));
        };
        for (size_t i = 0; i < sound.size() - 256; ++i) {
            for (int bit = 0; bit < 8; ++bit) {
                std::string bytes = sound;
                bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
                look(bytes);
            }
        }
        for (int i = 0; i < 20000; ++i) {
            std::string bytes = sound;
            for (uint32_t n = 1 + random.next() % 4; n > 0; --n) {
                const size_t at = random.next() % (bytes.size() - 256 - 8);
                static const uint64_t values[] = {0, 1, UINT64_MAX, INT64_MAX, uint64_t{1} << 32, 0xffffffff, 9, 8};
                const uint64_t value = values[random.next() % 8];
                std::memcpy(&bytes[at], &value, random.next() % 2 ? 8 : 4);
            }
            look(bytes);
        }
        CHECK(accepted > 100);
        CHECK(refused > 10000);
    }

    TEST_CASE("unsound structure is refused, naming the place") {
        const uint64_t huge = uint64_t{1} << 62;
        expect_faults({
            {"GGUF version 1;", [](Builder & b) { b.version = 1; }},
            {"GGUF version 4;", [](Builder & b) { b.version = 4; }},
            {"GGUF version 0;", [](Builder & b) { b.version = 0; }},
            {"claims 4611686018427387904 keys", [=](Builder & b) { b.n_keys = huge; }},
            {"claims 1000 keys", [](Builder & b) { b.n_keys = 1000; }},
            {"claims 9223372036854775808 tensors", [=](Builder & b) { b.n_tensors = huge * 2; }},
            {"claims 1000 tensors", [](Builder & b) { b.n_tensors = 1000; }},
            {"two values of key 'llama.block_count'", [](Builder & b) { b.keys.push_back(b.keys[3]); }},
            {"name is empty", [](Builder & b) { b.set(u32("", 1)); }},
            {"name is longer than 65535 bytes", [](Builder & b) { b.set(u32(std::string(65536, 'a'), 1)); }},
            {"name is cut by a NUL byte", [](Builder & b) { b.set(u32(std::string("a\0b", 3), 1)); }},
            {"unknown value type 13 of key 'x'", [](Builder & b) { b.set({"x", raw<uint32_t>(13)}); }},
            {"array of arrays of key 'x'", [](Builder & b) { b.set(array("x", 9, 1, "")); }},
            {"claims 4611686018427387904 elements in the array of key 'x'",
             [=](Builder & b) { b.set(array("x", 4, huge, "")); }},
            {"claims 4611686018427387904 elements in the array of key 'x'",
             [=](Builder & b) { b.set(array("x", 8, huge, "")); }},
            {"ends inside its header: a string of key 'x'",
             [=](Builder & b) { b.set({"x", raw<uint32_t>(8) + raw(huge)}); }},
            {"ends inside its header: a string of key 'x'",
             [=](Builder & b) { b.set(array("x", 8, 1, raw(UINT64_MAX))); }},
            {"general.alignment 0", [](Builder & b) { b.set(u32("general.alignment", 0)); }},
            {"general.alignment 48", [](Builder & b) { b.set(u32("general.alignment", 48)); }},
            {"general.alignment 2147483648", [](Builder & b) { b.set(u32("general.alignment", 1u << 31)); }},
            {"general.alignment that is not a uint32", [](Builder & b) { b.set(u16("general.alignment", 32)); }},
            {"whose name '' is empty", [](Builder & b) { b.tensors[0].name = ""; }},
            {"is longer than 63 bytes", [](Builder & b) { b.tensors[0].name = std::string(64, 'a'); }},
            {"is cut by a NUL byte", [](Builder & b) { b.tensors[0].name = std::string("a\0", 2); }},
            {"two tensors called 'output.weight'", [](Builder & b) { b.tensors[0].name = "output.weight"; }},
            {"claims 5 dimensions", [](Builder & b) { b.tensors[0].ne = {8, 4, 1, 1, 1}; }},
            {"a dimension of 0 of tensor 'token_embd.weight'", [](Builder & b) { b.tensors[0].ne = {0, 4}; }},
            {"a dimension of -4 of tensor 'token_embd.weight'", [](Builder & b) { b.tensors[0].ne = {8, -4}; }},
            {"whose product overflows", [=](Builder & b) { b.tensors[0].ne = {int64_t{1} << 62, 4}; }},
            {"in bytes of tensor 'token_embd.weight' that overflows",
             [=](Builder & b) { b.tensors[0].ne = {int64_t{1} << 62, 1}; }},
            {"unknown data type 43", [](Builder & b) { b.tensors[0].type = GGML_TYPE_COUNT; }},
            {"unknown data type 4294967295", [](Builder & b) { b.tensors[0].type = UINT32_MAX; }},
            {"data type 4 of tensor 'token_embd.weight', which llama.cpp has removed",
             [](Builder & b) { b.tensors[0].type = 4; }},
            {"rows of 8 values of tensor 'token_embd.weight', but type q8_0 comes in blocks of 32",
             [](Builder & b) { b.tensors[0].type = GGML_TYPE_Q8_0; }},
            {"tensor 'output.weight' at offset 160 of the tensor data, which overlaps tensor 'output_norm.weight'",
             [](Builder & b) { b.tensors[3].offset = 160; }},
            {"tensor 'output.weight' at offset 224 of the tensor data, which leaves a gap after tensor "
             "'output_norm.weight'",
             [](Builder & b) { b.tensors[3].offset = 224; }},
            {"leaves a gap after the header", [](Builder & b) { b.tensors[0].offset = 32; }},
            {"is not a multiple of the alignment 32", [](Builder & b) { b.tensors[3].offset = 200; }},
            {"is missing 2147483456 of its 2147483648 bytes",
             [](Builder & b) {
                 b.tensors[3].ne = {8, 1 << 27};
                 b.tensors[3].bytes = 192;
             }},
        });
    }

    TEST_CASE("an error text shows names from the file without control characters") {
        Builder builder;
        builder.tensors[0].name = "\x1b[31m\n\xff";
        builder.tensors[0].ne = {0};
        expect_bytes(builder.bytes(), SYRINX_ERR_BAD_MODEL, "'\\x1b[31m\\x0a\\xff'");
        CHECK(printable(std::string(500, 'a')).size() < 100);
    }

    TEST_CASE("values that llama.cpp would stop at are refused") {
        const float nan = std::numeric_limits<float>::quiet_NaN();
        expect_faults({
            {"does not say in general.architecture", [](Builder & b) { b.drop("general.architecture"); }},
            {"does not say in general.architecture", [](Builder & b) { b.set(str("general.architecture", "")); }},
            {"does not say in general.architecture", [](Builder & b) { b.set(u32("general.architecture", 1)); }},
            {"names 'a\\x0a' as its general.architecture",
             [](Builder & b) { b.set(str("general.architecture", "a\n")); }},
            {"vision or audio projector", [](Builder & b) { b.rename("clip"); }, SYRINX_ERR_UNSUPPORTED},
            {"draft model", [](Builder & b) { b.rename("eagle3"); }, SYRINX_ERR_UNSUPPORTED},
            {"one of 3 parts", [](Builder & b) { b.set(u16("split.count", 3)); }, SYRINX_ERR_UNSUPPORTED},
            {"split.count that is not a uint16", [](Builder & b) { b.set(u32("split.count", 1)); }},
            {"llama.block_count 0; it must be 1 to 512", [](Builder & b) { b.set(u32("llama.block_count", 0)); }},
            {"llama.block_count 513", [](Builder & b) { b.set(u32("llama.block_count", 513)); }},
            {"llama.block_count of type float32; it must be a uint32",
             [](Builder & b) { b.set(f32("llama.block_count", 2)); }},
            {"llama.context_length 4294967295", [](Builder & b) { b.set(u32("llama.context_length", UINT32_MAX)); }},
            {"llama.embedding_length 0", [](Builder & b) { b.set(u32("llama.embedding_length", 0)); }},
            {"llama.embedding_length 4294967295",
             [](Builder & b) { b.set(u32("llama.embedding_length", UINT32_MAX)); }},
            {"llama.vocab_size 4294967295", [](Builder & b) { b.set(u32("llama.vocab_size", UINT32_MAX)); }},
            {"head_count 0 for layer 0", [](Builder & b) { b.set(u32("llama.attention.head_count", 0)); }},
            {"head_count 0 for layer 1", [](Builder & b) { b.set(ints("llama.attention.head_count", {2, 0})); }},
            {"head_count -1 for layer 1", [](Builder & b) { b.set(ints("llama.attention.head_count", {2, -1})); }},
            {"1 values of llama.attention.head_count for 2 layers",
             [](Builder & b) { b.set(ints("llama.attention.head_count", {2})); }},
            {"lacks llama.attention.head_count", [](Builder & b) { b.drop("llama.attention.head_count"); }},
            {"head_count 2 and head_count_kv 3", [](Builder & b) { b.set(u32("llama.attention.head_count_kv", 3)); }},
            {"epsilon -1;", [=](Builder & b) { b.set(f32("llama.attention.layer_norm_rms_epsilon", -1)); }},
            {"epsilon nan;", [=](Builder & b) { b.set(f32("llama.attention.layer_norm_rms_epsilon", nan)); }},
            {"more than 0 and at most a head's 4", [](Builder & b) { b.set(u32("llama.rope.dimension_count", 6)); }},
            {"more than 0 and at most a head's 4", [](Builder & b) { b.set(u32("llama.rope.dimension_count", 3)); }},
            {"more than 0 and at most a head's 4", [](Builder & b) { b.set(u32("llama.rope.dimension_count", 0)); }},
            {"must be an array of 4 int32", [](Builder & b) { b.set(ints("llama.rope.dimension_sections", {1, 1})); }},
            {"dimension_sections -1", [](Builder & b) { b.set(ints("llama.rope.dimension_sections", {1, -1, 1, 1})); }},
            {"sections with a sum of 0",
             [](Builder & b) { b.rename("qwen2vl").set(ints("qwen2vl.rope.dimension_sections", {0, 0, 0, 0})); }},
            {"nothing but its 2 prediction layers", [](Builder & b) { b.set(u32("llama.nextn_predict_layers", 2)); }},
            {"llama.decoder_block_count 3, more than its 2 layers",
             [](Builder & b) { b.set(u32("llama.decoder_block_count", 3)); }},
            {"uses 3 experts of 2",
             [](Builder & b) { b.set(u32("llama.expert_count", 2)).set(u32("llama.expert_used_count", 3)); }},
            {"uses none of its 2 experts", [](Builder & b) { b.set(u32("llama.expert_count", 2)); }},
            {"which does not divide",
             [](Builder & b) {
                 b.set(u32("llama.expert_count", 8)).set(u32("llama.expert_used_count", 2));
                 b.set(u32("llama.expert_group_count", 3)).set(u32("llama.expert_group_used_count", 1));
             }},
            {"full_attention_interval 0; it must be at least 1",
             [](Builder & b) { b.rename("qwen35").set(u32("qwen35.full_attention_interval", 0)); }},
            {"ssm.conv_kernel 1; it must be at least 2",
             [](Builder & b) { b.rename("mamba").set(u32("mamba.ssm.conv_kernel", 1)); }},
            {"not a multiple of wkv.head_size 16",
             [](Builder & b) { b.rename("rwkv6").set(u32("rwkv6.wkv.head_size", 16)); }},
            {"neither qwen3next.expert_feed_forward_length nor", [](Builder & b) { b.rename("qwen3next"); }},
            {"aligns its tensors to 8 bytes", [](Builder & b) { b.set(u32("general.alignment", 8)).alignment = 8; },
             SYRINX_ERR_UNSUPPORTED},
            {"tensor 'blk.0.attn_norm.weight' as f16; ggml computes with it as f32 only",
             [](Builder & b) {
                 b.tensors[1].type = GGML_TYPE_F16;
                 b.tensors[1].bytes = 16;
             },
             SYRINX_ERR_UNSUPPORTED},
            {"tensor 'token_embd.weight' of type i32", [](Builder & b) { b.tensors[0].type = GGML_TYPE_I32; },
             SYRINX_ERR_UNSUPPORTED},
            {"lacks tensor 'blk.0.ssm_conv1d.bias'",
             [](Builder & b) { b.rename("falcon-h1").tensors[1].name = "blk.0.ssm_conv1d.weight"; }},
            {"without the model",
             [](Builder & b) {
                 b.rename("qwen35").set(u32("qwen35.nextn_predict_layers", 1)).tensors[1].name =
                     "blk.1.attn_norm.weight";
             },
             SYRINX_ERR_UNSUPPORTED},
        });
    }

    TEST_CASE("a vocabulary that llama.cpp cannot work with is refused") {
        const auto tokens = [](const std::string & model, const std::vector<std::string> & values) {
            return [=](Builder & b) {
                b.set(str("tokenizer.ggml.model", model)).set(texts("tokenizer.ggml.tokens", values));
                b.drop("tokenizer.ggml.scores").drop("tokenizer.ggml.token_type");
            };
        };
        expect_faults({
            {"does not name its tokenizer", [](Builder & b) { b.drop("tokenizer.ggml.model"); }},
            {"has no tokens", [](Builder & b) { b.drop("tokenizer.ggml.tokens"); }},
            {"has no tokens", [](Builder & b) { b.set(texts("tokenizer.ggml.tokens", {})); }},
            {"has no tokens", [](Builder & b) { b.set(ints("tokenizer.ggml.tokens", {1})); }},
            {"tokenizer.ggml.scores of type array of float32 with 3 values for 4 tokens",
             [](Builder & b) { b.set(numbers<float>("tokenizer.ggml.scores", 6, {0, 0, 0})); }},
            {"tokenizer.ggml.token_type of type array of float32",
             [](Builder & b) { b.set(numbers<float>("tokenizer.ggml.token_type", 6, {0, 0, 0, 0})); }},
            {"token 'a' twice (the second time as number 2)", tokens("llama", {"a", "b", "a"})},
            {"token 'a' twice", tokens("llama", {"a", std::string("a\0b", 3)})},  // a C string to llama.cpp
            {"called '[EMPTY_1]'", tokens("llama", {"[EMPTY_1]", ""})},
            {"the longest this tokenizer takes is 16384", tokens("gpt2", {"a", std::string(20000, 'b')})},
            {"the longest this tokenizer takes is 1024", tokens("t5", {"a", std::string(1025, 'b')})},
            {"begin with byte 0x62, but no token for that byte alone", tokens("rwkv", {"a", "ab", "bc"})},
            {"begin with byte 0x0a, but no token for that byte alone", tokens("rwkv", {"a", "\\n\\n"})},
            {"begin with byte 0xe4, but no token for that byte alone", tokens("rwkv", {"a", "\\xe4\\xbd"})},
            {"byte token 'a' (number 3)", [](Builder & b) { b.set(ints("tokenizer.ggml.token_type", {2, 3, 3, 6})); }},
            {"does not have (tokenizer.ggml.bos_token_id)", tokens("gemma4", {"a", "b"})},
            {"does not have (tokenizer.ggml.bos_token_id)", tokens("bert", {"a", "b"})},
            {"does not have (tokenizer.ggml.bos_token_id)", tokens("llama", {"a"})},
            {"does not have (tokenizer.ggml.eos_token_id)", tokens("t5", {"a"})},
            {"does not have (tokenizer.ggml.bos_token_id)",
             [=](Builder & b) {
                 tokens("gpt2", {"a", "b"})(b);
                 b.set({"tokenizer.ggml.add_bos_token", raw<uint32_t>(7) + "\1"});
                 b.set(u32("tokenizer.ggml.bos_token_id", 2));
             }},
            {"tokenizer.ggml.merges of type string",
             [](Builder & b) { b.set(str("tokenizer.ggml.model", "gpt2")).set(str("tokenizer.ggml.merges", "a b")); }},
        });
        Builder many;
        std::vector<std::string> long_tokens;
        for (int i = 0; i < 20; ++i) {
            long_tokens.push_back(std::to_string(i) + std::string(16000, 'a'));
        }
        tokens("gpt2", long_tokens)(many);
        expect_bytes(many.bytes(), SYRINX_ERR_BAD_MODEL, "its tokens are too long in all");

        Builder plamo;
        tokens("plamo2", {"a", std::string(1020, 'b'), std::string(1020, 'c')})(plamo);
        expect_bytes(plamo.bytes(), SYRINX_ERR_BAD_MODEL, "its tokens are too long in all");

        Builder rwkv;
        tokens("rwkv", {"a", "ab", "\\n", "\\n\\n", "\\xe4", "\\xe4\\xbd", "\\\\", "\\\\a", "\\"})(rwkv);
        CHECK(refusal([&] { check(rwkv.bytes()); }).text == "");
    }
}
