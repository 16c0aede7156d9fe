#include "core/gguf_rules.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "core/error.h"

namespace syrinx {

namespace {

constexpr int64_t kMaxLayers = 512;    // LLAMA_MAX_LAYERS
constexpr int64_t kMaxExperts = 1024;  // LLAMA_MAX_EXPERTS
constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 31;

// Integers of the architecture ("<architecture>.<key>"), scalars or one element a layer, and what they may be. llama.cpp
// divides by, allocates by or indexes with these. Bounds are far outside what any model has.
struct Range {
    const char * key;
    int64_t low, high;
};
const Range kRanges[] = {
    {"block_count", 1, kMaxLayers},
    {"context_length", 1, kMaxPositions},
    {"embedding_length", 1, kMaxWidth},
    {"embedding_length_out", 0, kMaxWidth},
    {"feed_forward_length", 0, kMaxWidth * 16},
    {"expert_feed_forward_length", 0, kMaxWidth * 16},
    {"expert_shared_feed_forward_length", 0, kMaxWidth * 16},
    {"expert_count", 0, kMaxExperts},
    {"expert_used_count", 0, kMaxExperts},
    {"vocab_size", 1, kMaxVocab},
    {"attention.head_count", 0, kMaxWidth},
    {"attention.head_count_kv", 0, kMaxWidth},
    {"attention.key_length", 1, kMaxWidth},
    {"attention.value_length", 1, kMaxWidth},
    {"attention.key_length_swa", 1, kMaxWidth},
    {"attention.value_length_swa", 1, kMaxWidth},
    {"attention.sliding_window", 0, kMaxPositions},
    {"rope.dimension_count", 0, kMaxWidth},
    {"rope.dimension_count_swa", 0, kMaxWidth},
    {"rope.dimension_sections", 0, kMaxWidth},
    {"rope.scaling.original_context_length", 0, kMaxPositions},
    {"full_attention_interval", 1, kMaxLayers},
    {"nextn_predict_layers", 0, kMaxLayers},
    {"leading_dense_block_count", 0, kMaxLayers},
    {"ssm.conv_kernel", 1, 1024},
    {"ssm.inner_size", 1, kMaxWidth},
    {"ssm.state_size", 1, kMaxWidth},
    {"ssm.time_step_rank", 1, kMaxWidth},
    {"ssm.group_count", 0, kMaxWidth},
    {"wkv.head_size", 1, kMaxWidth},
};

// Keys of the tokenizer that name a token: bos_token_id, eot_token_id, ...
bool names_token(const std::string & key) {
    static const char prefix[] = "tokenizer.ggml.";
    static const char suffix[] = "_token_id";
    return key.size() > sizeof prefix + sizeof suffix - 2 && key.compare(0, sizeof prefix - 1, prefix) == 0 &&
           key.compare(key.size() - (sizeof suffix - 1), std::string::npos, suffix) == 0;
}

class Rules {
public:
    explicit Rules(const GgufView & file) : file_(file) {}

    std::string check() {
        refuse_split();
        architecture_ = text("general.architecture");
        if (architecture_.empty()) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s' does not say its architecture (general.architecture)", name());
        }
        for (const Range & range : kRanges) {
            check_range(range);
        }
        check_heads();
        check_experts();
        check_vocabulary();
        check_tensors();
        return architecture_;
    }

private:
    const char * name() const { return file_.name().c_str(); }
    std::string key(const char * suffix) const { return architecture_ + "." + suffix; }

    // llama.cpp would open the other parts by itself, unchecked.
    void refuse_split() const {
        const GgufValue * count = file_.find("split.count");
        if (count && !(count->is_integer() && !count->is_array && count->integer() <= 1)) {
            fail(SYRINX_ERR_UNSUPPORTED, "'%s' is one part of a model that was split over several files: join them "
                 "first (llama.cpp's gguf-split --merge)", name());
        }
    }

    std::string text(const std::string & key) const {
        const GgufValue * value = file_.find(key);
        if (!value) {
            return "";
        }
        if (value->type != GGUF_TYPE_STRING || value->is_array) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %s is no string", name(), key.c_str());
        }
        return std::string(value->text());
    }

    // A scalar integer, or `otherwise`.
    int64_t integer(const std::string & key, int64_t otherwise) const {
        const GgufValue * value = file_.find(key);
        return value && value->is_integer() && !value->is_array ? value->integer() : otherwise;
    }

    void check_range(const Range & range) const {
        const std::string full = key(range.key);
        const GgufValue * value = file_.find(full);
        if (!value) {
            return;  // what is required and missing, llama.cpp says itself
        }
        if (!value->is_integer()) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %s is no integer", name(), full.c_str());
        }
        if (value->is_array && value->n > static_cast<uint64_t>(kMaxLayers)) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %s has %llu elements; a model has at most %lld layers", name(),
                 full.c_str(), static_cast<unsigned long long>(value->n), static_cast<long long>(kMaxLayers));
        }
        for (uint64_t i = 0; i < value->n; ++i) {
            const int64_t number = value->integer(i);
            if (number < range.low || number > range.high) {
                fail(SYRINX_ERR_BAD_MODEL, "'%s': %s is %lld; it must be %lld to %lld", name(), full.c_str(),
                     static_cast<long long>(number), static_cast<long long>(range.low),
                     static_cast<long long>(range.high));
            }
        }
    }

    // Heads share the width, and the key heads are shared by whole groups of query heads.
    void check_heads() const {
        const int64_t heads = integer(key("attention.head_count"), 0);
        const int64_t kv_heads = integer(key("attention.head_count_kv"), heads);
        if (heads > 0 && kv_heads > 0 && heads % kv_heads != 0) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %lld attention heads cannot share %lld key heads", name(),
                 static_cast<long long>(heads), static_cast<long long>(kv_heads));
        }
        const int64_t width = integer(key("embedding_length"), 0);
        if (heads > 0 && width > 0 && width < heads && !file_.find(key("attention.key_length"))) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %lld attention heads do not fit a width of %lld", name(),
                 static_cast<long long>(heads), static_cast<long long>(width));
        }
    }

    void check_experts() const {
        const int64_t experts = integer(key("expert_count"), 0);
        const int64_t used = integer(key("expert_used_count"), 0);
        if (used > experts) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %lld of %lld experts cannot be used", name(),
                 static_cast<long long>(used), static_cast<long long>(experts));
        }
    }

    const GgufValue * array(const std::string & key, std::initializer_list<gguf_type> types) const {
        const GgufValue * value = file_.find(key);
        if (value && (!value->is_array || std::find(types.begin(), types.end(), value->type) == types.end())) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %s is no array of %s", name(), key.c_str(),
                 gguf_type_name(*types.begin()));
        }
        return value;
    }

    void check_vocabulary() const {
        text("tokenizer.ggml.model");
        text("tokenizer.ggml.pre");
        text("tokenizer.chat_template");
        const GgufValue * tokens = array("tokenizer.ggml.tokens", {GGUF_TYPE_STRING});
        array("tokenizer.ggml.merges", {GGUF_TYPE_STRING});
        check_charsmap();
        const GgufValue * scores = array("tokenizer.ggml.scores", {GGUF_TYPE_FLOAT32});
        const GgufValue * types = array("tokenizer.ggml.token_type", {GGUF_TYPE_INT32, GGUF_TYPE_UINT32});
        const uint64_t n = tokens ? tokens->n : 0;
        if (n > static_cast<uint64_t>(kMaxVocab)) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': the vocabulary has %llu tokens", name(),
                 static_cast<unsigned long long>(n));
        }
        for (const GgufValue * list : {scores, types}) {
            if (tokens && list && list->n != n) {
                fail(SYRINX_ERR_BAD_MODEL, "'%s': the vocabulary has %llu tokens but %llu %s", name(),
                     static_cast<unsigned long long>(n), static_cast<unsigned long long>(list->n),
                     list == scores ? "scores" : "token types");
            }
        }
        if (tokens) {
            check_token_ids(n);
        }
    }

    void check_token_ids(uint64_t n) const {
        for (const auto & [key, value] : file_.values()) {
            if (!names_token(key)) {
                continue;
            }
            // -1, in 32 bits or more, stands for "none".
            const int64_t id = value.is_integer() && !value.is_array ? value.integer() : INT64_MIN;
            const bool none = id == -1 || id == UINT32_MAX;
            if (!none && (id < 0 || static_cast<uint64_t>(id) >= n)) {
                fail(SYRINX_ERR_BAD_MODEL, "'%s': %s is outside the vocabulary of %llu tokens", name(), key.c_str(),
                     static_cast<unsigned long long>(n));
            }
        }
    }

    // A trie as 32-bit units behind its length in bytes, then zero-terminated replacements.
    void check_charsmap() const {
        const char map_key[] = "tokenizer.ggml.precompiled_charsmap";
        const GgufValue * map = array(map_key, {GGUF_TYPE_UINT8, GGUF_TYPE_INT8});
        if (!map || map->n == 0) {
            return;
        }
        uint32_t trie_bytes = 0;
        const bool has_length = map->n >= sizeof trie_bytes;
        if (has_length) {
            std::memcpy(&trie_bytes, map->data, sizeof trie_bytes);
        }
        if (!has_length || trie_bytes % 4 != 0 || trie_bytes >= map->n - sizeof trie_bytes ||
            map->data[map->n - 1] != 0) {
            fail(SYRINX_ERR_BAD_MODEL, "'%s': %s is damaged", name(), map_key);
        }
    }

    void check_tensors() const {
        const int64_t layers = integer(key("block_count"), 0);
        for (const GgufTensor & tensor : file_.tensors()) {
            long layer = 0;
            if (std::sscanf(tensor.name.c_str(), "blk.%ld.", &layer) == 1 && layers > 0 &&
                (layer < 0 || layer >= layers)) {
                fail(SYRINX_ERR_BAD_MODEL, "'%s': tensor '%s' belongs to a layer that the model's %lld do not include",
                     name(), tensor.name.c_str(), static_cast<long long>(layers));
            }
        }
    }

    const GgufView & file_;
    std::string architecture_;
};

}  // namespace

std::string check_rules(const GgufView & file) { return Rules(file).check(); }

}  // namespace syrinx
