#include "core/gguf_check.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "core/error.h"

namespace syrinx {

namespace {

constexpr int64_t kMaxLayers = 512;      // llama.cpp's LLAMA_MAX_LAYERS: the size of its per-layer arrays
constexpr int64_t kMaxExperts = 1024;    // LLAMA_MAX_EXPERTS
constexpr size_t kMaxArchitecture = 63;  // as syrinx_model_facts holds it
constexpr int64_t kMaxVocab = int64_t{1} << 22;
constexpr uint64_t kMapAlignment = 32;  // what ggml wants of weights that it computes on where they are mapped

enum class Kind {
    Uint32,    // exactly this, or llama.cpp refuses
    PerLayer,  // uint32, or an array of one integer a layer
    Float32
};

// A range beyond which llama.cpp would assert, index past an array, or allocate without bounds. The key comes after the
// architecture's name. `high` of a Float32 is not looked at: finite is enough.
struct KeyRule {
    const char * key;
    Kind kind;
    int64_t low, high;
};

constexpr KeyRule kKeyRules[] = {
    {"vocab_size", Kind::Uint32, 0, kMaxVocab},  // without a tokenizer: so many dummy tokens are made
    {"context_length", Kind::Uint32, 1, INT32_MAX},
    {"embedding_length", Kind::Uint32, 1, 1 << 20},
    {"embedding_length_out", Kind::Uint32, 0, 1 << 20},
    {"features_length", Kind::Uint32, 0, 1 << 20},
    {"block_count", Kind::Uint32, 1, kMaxLayers},
    {"nextn_predict_layers", Kind::Uint32, 0, kMaxLayers},
    {"decoder_block_count", Kind::Uint32, 0, kMaxLayers},
    {"n_deepstack_layers", Kind::Uint32, 0, kMaxLayers},
    {"feed_forward_length", Kind::PerLayer, 0, 1 << 24},
    {"expert_feed_forward_length", Kind::PerLayer, 0, 1 << 24},
    {"expert_count", Kind::Uint32, 0, kMaxExperts},
    {"expert_used_count", Kind::PerLayer, 0, kMaxExperts},
    {"expert_group_count", Kind::Uint32, 0, kMaxExperts},
    {"expert_group_used_count", Kind::Uint32, 0, kMaxExperts},
    {"attention.head_count", Kind::PerLayer, 0, 1 << 16},
    {"attention.head_count_kv", Kind::PerLayer, 0, 1 << 16},
    {"attention.key_length", Kind::Uint32, 0, 1 << 13},
    {"attention.value_length", Kind::Uint32, 0, 1 << 13},
    {"attention.key_length_swa", Kind::Uint32, 0, 1 << 13},
    {"attention.value_length_swa", Kind::Uint32, 0, 1 << 13},
    {"attention.layer_norm_epsilon", Kind::Float32, 0, 0},  // asserted on a compute thread
    {"attention.layer_norm_rms_epsilon", Kind::Float32, 0, 0},
    {"attention.group_norm_epsilon", Kind::Float32, 0, 0},
    {"rope.dimension_count", Kind::Uint32, 0, 1 << 13},
    {"rope.dimension_count_swa", Kind::Uint32, 0, 1 << 13},
    {"hyper_connection.count", Kind::Uint32, 0, 64},
    {"ssm.conv_kernel", Kind::Uint32, 0, 1 << 10},
    {"ssm.inner_size", Kind::Uint32, 0, 1 << 22},
    {"ssm.state_size", Kind::Uint32, 0, 1 << 16},
    {"ssm.time_step_rank", Kind::Uint32, 0, 1 << 20},
    {"ssm.group_count", Kind::Uint32, 0, 1 << 16},
    {"kda.head_dim", Kind::Uint32, 0, 1 << 13},
    {"shortconv.l_cache", Kind::Uint32, 0, 1 << 10},
    {"token_shift_count", Kind::Uint32, 0, 2},
};

// Values that these architectures divide by, or size a state with, so that 0 will not do. Others may carry the key
// unused: llama.cpp writes every key it knows when it saves a model.
struct NeedRule {
    const char * key;
    int64_t least;
    const char * architectures;
};

constexpr NeedRule kNeedRules[] = {
    {"full_attention_interval", 1, "qwen3next qwen35 qwen35moe qwen4exp minimax-01"},
    {"experts_per_group", 1, "grovemoe"},
    {"attention.output_group_count", 1, "deepseek4"},
    {"attention.group_norm_groups", 1, "wavtokenizer-dec"},
    {"hyper_connection.count", 1, "deepseek4 hy_v4 qwen4exp glm5-next"},
    {"ssm.conv_kernel", 2,
     "mamba mamba2 jamba falcon-h1 plamo2 granitehybrid nemotron_h nemotron_h_moe qwen3next qwen35 "
     "qwen35moe qwen4exp kimi-linear kimi-k3 bailingmoe3 glm5-next"},
    {"ssm.inner_size", 1,
     "mamba mamba2 jamba falcon-h1 plamo2 granitehybrid nemotron_h nemotron_h_moe qwen3next qwen35 "
     "qwen35moe qwen4exp"},
    {"ssm.state_size", 1,
     "mamba mamba2 jamba falcon-h1 plamo2 granitehybrid nemotron_h nemotron_h_moe qwen3next qwen35 "
     "qwen35moe qwen4exp"},
    {"ssm.time_step_rank", 1,
     "mamba mamba2 jamba falcon-h1 plamo2 granitehybrid nemotron_h nemotron_h_moe qwen3next "
     "qwen35 qwen35moe qwen4exp"},
    {"ssm.group_count", 1,
     "mamba2 falcon-h1 granitehybrid nemotron_h nemotron_h_moe qwen3next qwen35 qwen35moe qwen4exp"},
    {"kda.head_dim", 1, "kimi-linear kimi-k3 bailingmoe3 glm5-next"},
    {"shortconv.l_cache", 2, "lfm2 lfm2moe"},
    {"wkv.head_size", 1, "rwkv6 rwkv6qwen2 rwkv7 arwkv7"},
    {"token_shift_count", 1, "rwkv6 rwkv6qwen2 rwkv7 arwkv7"},
};

// Layers without attention (recurrent or skipped) have 0 heads here; elsewhere a 0 would be divided by.
constexpr char kMayHaveNoHeads[] =
    "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 jamba plamo2 granitehybrid lfm2 lfm2moe nemotron_h nemotron_h_moe "
    "kimi-linear kimi-k3 bailingmoe3 glm5-next deci wavtokenizer-dec";

// Divide the feed-forward length by the experts in use where no length of an expert is given.
constexpr char kDivideByExperts[] = "qwen3next qwen35moe qwen4exp glm4moe grovemoe llada-moe";

// Rotate nothing, so that 0 values to rotate are right. Elsewhere a compute thread would not come to an end.
constexpr char kNeverRotate[] =
    "gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2 rwkv7 arwkv7 "
    "wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear kimi-k3 glm5-next";

// May come as their prediction layers alone; the other layers are then built of tensors that are not there.
constexpr char kMayLackTrunk[] =
    "bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe glm5-next hy_v3 mimo2 nemotron_h "
    "nemotron_h_moe qwen35 qwen35moe qwen3next step35";

// Tensors that llama.cpp takes for optional and then uses: a block that has the one needs the other, or the third.
struct PairRule {
    const char * architectures;
    const char * has;
    const char * needs;
    const char * or_needs;
};

constexpr PairRule kPairRules[] = {
    {"falcon-h1 granitehybrid nemotron_h nemotron_h_moe", "ssm_conv1d.weight", "ssm_conv1d.bias", nullptr},
    {"qwen35 qwen35moe", "ssm_conv1d.weight", "attn_qkv.weight", nullptr},
    {"qwen35 qwen35moe", "ssm_conv1d.weight", "attn_gate.weight", nullptr},
    {"qwen3next", "ssm_conv1d.weight", "attn_qkv.weight", "ssm_in.weight"},
    {"qwen3next", "attn_qkv.weight", "attn_gate.weight", nullptr},
};

// Rotate by sections whatever the sections are.
constexpr char kAlwaysSections[] = "qwen2vl paddleocr qwen3vl qwen3vlmoe qwen35 qwen35moe qwen4exp qwen3tts";

// Whether `name` is one of the space-separated `names`.
bool contains(std::string_view names, std::string_view name) {
    for (size_t at = names.find(name); at != names.npos; at = names.find(name, at + 1)) {
        const size_t end = at + name.size();
        if ((at == 0 || names[at - 1] == ' ') && (end == names.size() || names[end] == ' ')) {
            return true;
        }
    }
    return false;
}

// Parts of another model, which llama.cpp takes apart from it.
struct Part {
    const char * architecture;
    const char * what;
};
constexpr Part kParts[] = {
    {"clip", "a vision or audio projector (mmproj)"},
    {"eagle3", "a draft model that only runs beside its target"},
    {"dflash", "a draft model that only runs beside its target"},
    {"gemma4-assistant", "a draft model that only runs beside its target"},
};

// Weights, without "blk.N." and ".weight", that ggml's CPU operations read as float32 only. Others whose name holds
// "norm" too; biases and scales as well.
constexpr char kFloatStems[] =
    "altup_correct_scale attn_conv_base ffn_conv_base attn_res_score ffn_res_score output_res_score hc_attn_base "
    "hc_ffn_base output_hc_base hc_attn_scale hc_ffn_scale output_hc_scale layer_output_scale exp_probs_b "
    "exp_probs_b_vl "
    "indexer_compressor_ape hrm.z_l_init ffn.act attn_sinks rope_freqs rope_factors_long rope_factors_short ssm_a "
    "ssm_d "
    "ssm_conv1d ssm_conv1d_q ssm_conv1d_k ssm_conv1d_v ple_conv1d shortconv.conv channel_mix_lerp_k channel_mix_lerp_r "
    "time_mix_a0 time_mix_v0 time_mix_w0 time_mix_k_a time_mix_k_k time_mix_r_k time_mix_decay time_mix_first "
    "time_mix_ln "
    "time_mix_lerp_fused time_mix_lerp_g time_mix_lerp_k time_mix_lerp_r time_mix_lerp_v time_mix_lerp_w "
    "time_mix_lerp_x "
    "gamma";

bool ends_with(const std::string & text, std::string_view tail) {
    return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

// "enc.blk.3.attn_norm.weight" -> "attn_norm".
std::string stem_of(const std::string & name) {
    size_t begin = 0;
    for (const char * prefix : {"enc.", "dec."}) {
        begin += name.compare(begin, 4, prefix) == 0 ? 4 : 0;
    }
    for (const char * prefix : {"blk.", "posnet.", "convnext."}) {
        if (name.compare(begin, std::strlen(prefix), prefix) == 0) {
            const size_t dot = name.find('.', begin + std::strlen(prefix));
            begin = dot == name.npos ? begin : dot + 1;
            break;
        }
    }
    const size_t end = ends_with(name, ".weight") ? name.size() - 7 : name.size();
    return name.substr(begin, end > begin ? end - begin : 0);
}

bool must_be_float(const std::string & name) {
    if (ends_with(name, ".bias") || ends_with(name, ".scale") || ends_with(name, ".input_scale")) {
        return true;
    }
    const std::string stem = stem_of(name);
    return stem.find("norm") != stem.npos || contains(kFloatStems, stem);
}

// Types that only stand between two operations, or that no operation multiplies with.
bool is_weight_type(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q8_1:
        case GGML_TYPE_Q8_K:
        case GGML_TYPE_I8:
        case GGML_TYPE_I16:
        case GGML_TYPE_I32:
        case GGML_TYPE_I64:
        case GGML_TYPE_F64:  return false;
        default:             return true;
    }
}

class LlamaRules {
public:
    explicit LlamaRules(const GgufFile & file) : file_(file) {}

    void run() {
        check_architecture();
        check_split();
        check_keys();
        check_layers();
        check_heads();
        check_rope();
        check_experts();
        check_state();
        check_tensors();
        check_tokenizer();
    }

private:
    [[noreturn]] void bad(const std::string & text) const {
        fail(SYRINX_ERR_BAD_MODEL, "'%s' %s", file_.name().c_str(), text.c_str());
    }

    [[noreturn]] void unsupported(const std::string & text) const {
        fail(SYRINX_ERR_UNSUPPORTED, "'%s' %s", file_.name().c_str(), text.c_str());
    }

    // Of a key of the architecture: its integers, one or one a layer; empty if the file has none. check_keys has seen to
    // their types.
    std::vector<int64_t> values(const char * key) const {
        std::vector<int64_t> out;
        if (const auto value = file_.find(architecture_ + "." + key)) {
            for (uint64_t i = 0; i < value->size(); ++i) {
                out.push_back(value->integer(i).value_or(0));
            }
        }
        return out;
    }

    // The same, of layer i (or of all).
    static int64_t at(const std::vector<int64_t> & values, size_t i, int64_t otherwise) {
        return values.empty() ? otherwise : values.size() == 1 ? values[0] : i < values.size() ? values[i] : otherwise;
    }

    int64_t number(const char * key, int64_t otherwise) const { return at(values(key), 0, otherwise); }
    bool has(const char * key) const { return file_.find(architecture_ + "." + key).has_value(); }

    void check_architecture();
    void check_split() const;
    void check_keys() const;
    void check_key(const KeyRule & rule, const std::string & name, const GgufField & value) const;
    void check_layers();
    void check_heads() const;
    void check_rope() const;
    void check_sections(int64_t width) const;
    void check_experts() const;
    void check_state() const;
    void check_tensors() const;
    void check_tensor_type(const GgufTensor & tensor) const;
    void check_pairs(const GgufTensor & tensor) const;
    void check_trunk() const;

    void check_tokenizer() const;
    void check_token_tables(const std::string & model, uint64_t n_tokens) const;
    void check_token_texts(const std::string & model, const std::vector<std::string_view> & tokens) const;
    void check_unique(const std::vector<std::string_view> & tokens) const;
    void check_rwkv(const std::vector<std::string_view> & tokens) const;
    void check_ends(const std::string & model, int64_t n_tokens) const;
    bool names_token(const char * kind, int64_t otherwise, int64_t n_tokens) const;
    bool flag(const char * key, bool otherwise) const;

    const GgufFile & file_;
    std::string architecture_;
    int64_t n_layers_ = 0;  // 0: not said, as in a file with nothing but a vocabulary
};

void LlamaRules::check_architecture() {
    const auto value = file_.find("general.architecture");
    if (!value || !value->text() || value->text()->empty()) {
        bad("does not say in general.architecture what model it is: it is no language model, or damaged");
    }
    architecture_ = std::string(*value->text());
    if (architecture_.size() > kMaxArchitecture || printable(architecture_) != architecture_) {
        bad(format("names '%s' as its general.architecture: it is damaged", printable(architecture_).c_str()));
    }
    for (const Part & part : kParts) {
        if (architecture_ == part.architecture) {
            unsupported(format("is %s, not a model that runs on its own: open the main model", part.what));
        }
    }
}

void LlamaRules::check_split() const {
    const auto count = file_.find("split.count");
    if (!count) {
        return;
    }
    if (count->is_array() || count->type() != GgufType::Uint16) {
        bad("has a split.count that is not a uint16: it is damaged");
    }
    if (*count->integer() > 1) {
        unsupported(format("is one of %d parts of a split model: join them with llama-gguf-split --merge",
                           static_cast<int>(*count->integer())));
    }
}

void LlamaRules::check_keys() const {
    for (const KeyRule & rule : kKeyRules) {
        const std::string name = architecture_ + "." + rule.key;
        if (const auto value = file_.find(name)) {
            check_key(rule, name, *value);
        }
    }
}

void LlamaRules::check_key(const KeyRule & rule, const std::string & name, const GgufField & value) const {
    const bool per_layer = rule.kind == Kind::PerLayer && value.is_array();
    const GgufType type = value.type();
    const bool fits = per_layer ? type == GgufType::Uint32 || type == GgufType::Int32 || type == GgufType::Bool
                                : type == (rule.kind == Kind::Float32 ? GgufType::Float32 : GgufType::Uint32);
    if (!fits || value.is_array() != per_layer) {
        bad(format("has %s of type %s; it must be a %s%s", name.c_str(), value.describe().c_str(),
                   rule.kind == Kind::Float32 ? "float32" : "uint32",
                   rule.kind == Kind::PerLayer ? ", or an array of one a layer" : ""));
    }
    if (rule.kind == Kind::Float32) {
        const double real = *value.real();
        if (!std::isfinite(real) || real < static_cast<double>(rule.low)) {
            bad(format("has %s %g; it must be a number not below %" PRId64, name.c_str(), real, rule.low));
        }
        return;
    }
    if (per_layer && value.size() > static_cast<uint64_t>(kMaxLayers)) {
        bad(format("has %" PRIu64 " values of %s; at most %" PRId64 " layers are supported", value.size(), name.c_str(),
                   kMaxLayers));
    }
    for (uint64_t i = 0; i < value.size(); ++i) {
        const int64_t number = *value.integer(i);
        if (number < rule.low || number > rule.high) {
            bad(format("has %s %" PRId64 "%s; it must be %" PRId64 " to %" PRId64, name.c_str(), number,
                       per_layer ? format(" for layer %" PRIu64, i).c_str() : "", rule.low, rule.high));
        }
    }
}

void LlamaRules::check_layers() {
    n_layers_ = number("block_count", 0);
    if (n_layers_ == 0) {
        return;
    }
    for (const KeyRule & rule : kKeyRules) {
        const size_t n = rule.kind == Kind::PerLayer ? values(rule.key).size() : 0;
        const auto value = file_.find(architecture_ + "." + rule.key);
        if (n != 0 && value->is_array() && n != static_cast<size_t>(n_layers_)) {
            bad(format("has %zu values of %s.%s for %" PRId64 " layers", n, architecture_.c_str(), rule.key,
                       n_layers_));
        }
    }
    if (number("nextn_predict_layers", 0) >= n_layers_) {
        bad(format("has nothing but its %" PRId64 " prediction layers (nextn_predict_layers, block_count)", n_layers_));
    }
    for (const char * key : {"decoder_block_count", "n_deepstack_layers"}) {
        if (number(key, 0) > n_layers_) {
            bad(format("has %s.%s %" PRId64 ", more than its %" PRId64 " layers", architecture_.c_str(), key,
                       number(key, 0), n_layers_));
        }
    }
}

void LlamaRules::check_heads() const {
    const std::vector<int64_t> heads = values("attention.head_count");
    const std::vector<int64_t> heads_kv = values("attention.head_count_kv");
    const bool may_be_none = contains(kMayHaveNoHeads, architecture_);
    if (heads.empty() && n_layers_ > 0 && !may_be_none) {
        bad(format("lacks %s.attention.head_count", architecture_.c_str()));
    }
    for (size_t i = 0; i < std::max(heads.size(), heads_kv.size()); ++i) {
        const int64_t n = at(heads, i, 0);
        const int64_t n_kv = at(heads_kv, i, n);
        if (n == 0 && !heads.empty() && !may_be_none) {
            bad(format("has %s.attention.head_count 0 for layer %zu", architecture_.c_str(), i));
        }
        if (n > 0 && n_kv > 0 && n % n_kv != 0) {
            bad(format("has %s.attention.head_count %" PRId64 " and head_count_kv %" PRId64 " for layer %zu: the first "
                       "must be a multiple of the second",
                       architecture_.c_str(), n, n_kv, i));
        }
    }
}

// What is rotated must fit into a head, or the compute threads stop.
void LlamaRules::check_rope() const {
    const int64_t n_head = number("attention.head_count", 0);
    if (n_head == 0 || !has("embedding_length")) {
        return;
    }
    const int64_t width = number("attention.key_length", number("embedding_length", 0) / n_head);
    const int64_t width_swa = number("attention.key_length_swa", width);
    const struct {
        const char * key;
        int64_t most;
    } turned[] = {{"rope.dimension_count", width}, {"rope.dimension_count_swa", width_swa}};
    for (const auto & [key, most] : turned) {
        const int64_t n = number(key, most);
        if (n > most || n % 2 != 0 || (n == 0 && !contains(kNeverRotate, architecture_))) {
            bad(format("has %s.%s %" PRId64 "; it must be even, more than 0 and at most a head's %" PRId64 " values",
                       architecture_.c_str(), key, n, most));
        }
    }
    const int64_t indexer = number("attention.indexer.key_length", 0);
    if (indexer > 0 && number("rope.dimension_count", 0) > indexer) {
        bad(format("has %s.rope.dimension_count above attention.indexer.key_length %" PRId64, architecture_.c_str(),
                   indexer));
    }
    check_sections(width);
}

void LlamaRules::check_sections(int64_t width) const {
    const std::string name = architecture_ + ".rope.dimension_sections";
    const auto value = file_.find(name);
    if (!value) {
        return;
    }
    const bool fits = value->is_array() && value->size() == 4 &&
                      (value->type() == GgufType::Uint32 || value->type() == GgufType::Int32);
    if (!fits) {
        bad(format("has %s of type %s with %" PRIu64 " values; it must be an array of 4 int32", name.c_str(),
                   value->describe().c_str(), value->size()));
    }
    int64_t sum = 0, turned = 0;
    for (uint64_t i = 0; i < 4; ++i) {
        const int64_t section = *value->integer(i);
        if (section < 0 || section > width) {
            bad(format("has %s %" PRId64 "; it must be 0 to a head's %" PRId64 " values", name.c_str(), section,
                       width));
        }
        sum += section;
        turned += i < 3 ? section : 0;
    }
    if (sum > width || (turned == 0 && contains(kAlwaysSections, architecture_))) {
        bad(format("has %s with a sum of %" PRId64 "; it must be 1 to a head's %" PRId64 " values", name.c_str(), sum,
                   width));
    }
}

void LlamaRules::check_experts() const {
    const int64_t n = number("expert_count", 0);
    const std::vector<int64_t> used = values("expert_used_count");
    const int64_t most = used.empty() ? 0 : *std::max_element(used.begin(), used.end());
    if (most > n) {
        bad(format("uses %" PRId64 " experts of %" PRId64 " (expert_used_count, expert_count)", most, n));
    }
    if (n > 0 && most == 0) {
        bad(format("uses none of its %" PRId64 " experts (expert_used_count)", n));
    }
    const int64_t groups = number("expert_group_count", 0);
    if (groups > 1) {
        const int64_t groups_used = number("expert_group_used_count", 0);
        if (n % groups != 0 || groups >= n || groups_used < 1 || groups_used >= groups) {
            bad(format("has %" PRId64 " experts in %" PRId64 " groups of which %" PRId64 " are used (expert_count, "
                       "expert_group_count, expert_group_used_count), which does not divide",
                       n, groups, groups_used));
        }
    }
    if (most == 0 && number("expert_feed_forward_length", 0) == 0 && contains(kDivideByExperts, architecture_) &&
        n_layers_ > 0) {
        bad(format("gives neither %s.expert_feed_forward_length nor expert_used_count", architecture_.c_str()));
    }
}

void LlamaRules::check_state() const {
    for (const NeedRule & rule : kNeedRules) {
        const auto value = file_.find(architecture_ + "." + rule.key);
        if (value && contains(rule.architectures, architecture_) && value->integer().value_or(0) < rule.least) {
            bad(format("has %s.%s %" PRId64 "; it must be at least %" PRId64, architecture_.c_str(), rule.key,
                       value->integer().value_or(0), rule.least));
        }
    }
    const int64_t head = number("wkv.head_size", 0);
    if (head > 0 && number("embedding_length", 0) % head != 0) {
        bad(format("has %s.embedding_length %" PRId64 ", not a multiple of wkv.head_size %" PRId64,
                   architecture_.c_str(), number("embedding_length", 0), head));
    }
}

void LlamaRules::check_tensors() const {
    if (file_.alignment() < kMapAlignment && !file_.tensors().empty()) {
        unsupported(format("aligns its tensors to %" PRIu64 " bytes; %" PRIu64 " are needed to compute on them where "
                           "they are mapped: convert it with the default alignment",
                           file_.alignment(), kMapAlignment));
    }
    for (const GgufTensor & tensor : file_.tensors()) {
        check_tensor_type(tensor);
        check_pairs(tensor);
    }
    check_trunk();
}

void LlamaRules::check_tensor_type(const GgufTensor & tensor) const {
    if (!is_weight_type(tensor.type)) {
        unsupported(format("holds tensor '%s' of type %s, which no operation takes as a weight",
                           printable(tensor.name).c_str(), ggml_type_name(tensor.type)));
    }
    if (tensor.type != GGML_TYPE_F32 && must_be_float(tensor.name)) {
        unsupported(format("holds tensor '%s' as %s; ggml computes with it as f32 only: convert the model with norms, "
                           "biases and scales in f32",
                           printable(tensor.name).c_str(), ggml_type_name(tensor.type)));
    }
}

void LlamaRules::check_pairs(const GgufTensor & tensor) const {
    for (const PairRule & rule : kPairRules) {
        const size_t stem = tensor.name.size() - std::min(tensor.name.size(), std::strlen(rule.has));
        if (tensor.name.compare(stem, tensor.name.npos, rule.has) != 0 ||
            !contains(rule.architectures, architecture_)) {
            continue;
        }
        const std::string block = tensor.name.substr(0, stem);
        if (!file_.find_tensor(block + rule.needs) && !(rule.or_needs && file_.find_tensor(block + rule.or_needs))) {
            bad(format("lacks tensor '%s%s'", printable(block).c_str(), rule.needs));
        }
    }
}

void LlamaRules::check_trunk() const {
    if (number("nextn_predict_layers", 0) > 0 && contains(kMayLackTrunk, architecture_) && !file_.tensors().empty() &&
        !file_.find_tensor("blk.0.attn_norm.weight")) {
        unsupported("holds the prediction layers of a model without the model: open the main file");
    }
    for (const char * side : {"enc.", "dec."}) {
        const std::string block = std::string(side) + "blk.0.";
        if (contains("t5 t5encoder", architecture_) && file_.find_tensor(block + "attn_norm.weight") &&
            !file_.find_tensor(block + "attn_rel_b.weight")) {
            bad(format("lacks tensor '%sattn_rel_b.weight'", block.c_str()));
        }
    }
}

// ------------------------------------------------------------------------------------------------------- tokenizer

constexpr size_t kMaxTokenBytes = 1 << 14;      // llama.cpp works on a token's text with recursion or in square time
constexpr size_t kMaxTrieTokenBytes = 1 << 10;  // one stack frame a byte
// Sums over all tokens of the bytes that llama.cpp builds of one at most: its length squared; for plamo2, cubed.
constexpr uint64_t kMaxTokenSquares = uint64_t{1} << 28;
constexpr uint64_t kMaxTokenCubes = uint64_t{1} << 30;

constexpr int64_t kByteToken = 6;  // LLAMA_TOKEN_TYPE_BYTE

void LlamaRules::check_tokenizer() const {
    const auto value = file_.find("tokenizer.ggml.model");
    if (!value || !value->text()) {
        bad("does not name its tokenizer in tokenizer.ggml.model (\"none\" for a model without one)");
    }
    const std::string model(*value->text());
    if (model == "none" || model == "no_vocab") {
        return;
    }
    const auto list = file_.find("tokenizer.ggml.tokens");
    if (!list || !list->is_array() || list->type() != GgufType::String || list->size() == 0) {
        bad("has no tokens in tokenizer.ggml.tokens, an array of strings");
    }
    check_token_tables(model, list->size());
    const std::vector<std::string_view> tokens = list->texts();
    check_token_texts(model, tokens);
    check_unique(tokens);
    check_ends(model, static_cast<int64_t>(tokens.size()));
    if (model == "rwkv") {
        check_rwkv(tokens);
    }
}

// The ids that llama.cpp takes where a file names none (-1: none either), and whether it puts them around a text then.
struct Ends {
    const char * model;
    int64_t bos, eos, sep;
    bool add_bos, add_eos, add_sep;
};

constexpr Ends kEnds[] = {
    {"llama", 1, 2, -1, true, false, false},         {"bert", 101, -1, 102, true, false, true},
    {"gpt2", 11, 11, -1, false, false, false},       {"hybriddna", 11, 11, -1, false, false, false},
    {"whitespace", 11, 11, -1, false, false, false}, {"t5", -1, 1, -1, false, true, false},
    {"gemma4", -1, -1, -1, true, false, false},
};

// Ids beyond the vocabulary are dropped, by llama.cpp too.
bool LlamaRules::names_token(const char * kind, int64_t otherwise, int64_t n_tokens) const {
    const auto value = file_.find(format("tokenizer.ggml.%s_token_id", kind));
    const int64_t id = value ? value->integer().value_or(-1) : -1;
    return (id >= 0 && id < n_tokens) || (otherwise >= 0 && otherwise < n_tokens);
}

bool LlamaRules::flag(const char * key, bool otherwise) const {
    const auto value = file_.find(key);
    return value && value->type() == GgufType::Bool && !value->is_array() ? *value->integer() != 0 : otherwise;
}

// Tokenizing asserts that a token which every text is to begin or end with exists.
void LlamaRules::check_ends(const std::string & model, int64_t n_tokens) const {
    const auto ends =
        std::find_if(std::begin(kEnds), std::end(kEnds), [&](const Ends & e) { return model == e.model; });
    if (ends == std::end(kEnds)) {
        return;
    }
    const auto pre = file_.find("tokenizer.ggml.pre");
    const bool no_bos = pre && pre->text() && contains("chatglm-bpe glm4 glm5", *pre->text());
    const bool always = model == "gemma4" || model == "bert";
    const struct {
        const char * kind;
        bool wanted;
        int64_t otherwise;
    } tokens[] = {
        {"bos", always || flag("tokenizer.ggml.add_bos_token", ends->add_bos), no_bos ? -1 : ends->bos},
        {"eos", model != "bert" && flag("tokenizer.ggml.add_eos_token", ends->add_eos), ends->eos},
        {"seperator", ends->add_sep, ends->sep},
    };
    for (const auto & token : tokens) {
        if (token.wanted && !names_token(token.kind, token.otherwise, n_tokens)) {
            bad(format("wants a token around every text that it does not have (tokenizer.ggml.%s_token_id)",
                       token.kind));
        }
    }
}

void LlamaRules::check_token_tables(const std::string & model, uint64_t n_tokens) const {
    const auto scores = file_.find("tokenizer.ggml.scores");
    const auto types = file_.find("tokenizer.ggml.token_type");
    const auto merges = file_.find("tokenizer.ggml.merges");
    const auto require = [&](const char * key, const GgufField & table, bool type_fits) {
        if (!table.is_array() || !type_fits || table.size() < n_tokens) {
            bad(format("has %s of type %s with %" PRIu64 " values for %" PRIu64 " tokens", key,
                       table.describe().c_str(), table.size(), n_tokens));
        }
    };
    if (scores) {
        require("tokenizer.ggml.scores", *scores,
                scores->type() == GgufType::Float32 || scores->type() == GgufType::Int32);
    }
    if (types) {
        require("tokenizer.ggml.token_type", *types, types->type() == GgufType::Int32);
    }
    if (merges && (model == "gpt2" || model == "gemma4") &&
        (!merges->is_array() || merges->type() != GgufType::String)) {
        bad(format("has tokenizer.ggml.merges of type %s; it must be an array of strings", merges->describe().c_str()));
    }
}

void LlamaRules::check_token_texts(const std::string & model, const std::vector<std::string_view> & tokens) const {
    const auto types = file_.find("tokenizer.ggml.token_type");
    const bool cubic = model == "plamo2";
    const bool trie = model == "t5" || model == "rwkv" || cubic;
    const bool bytes_by_name = model == "llama" || model == "t5" || model == "gpt2" || model == "gemma4";
    const size_t most = trie ? kMaxTrieTokenBytes : kMaxTokenBytes;
    uint64_t work = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const size_t n = tokens[i].size();
        work += n > most ? 0 : n * n * (cubic ? n : 1);
        if (n > most || work > (cubic ? kMaxTokenCubes : kMaxTokenSquares)) {
            bad(format("has a token of %zu bytes (number %zu, '%s'); %s", n, i, printable(tokens[i]).c_str(),
                       n > most ? format("the longest this tokenizer takes is %zu", most).c_str()
                                : "its tokens are too long in all"));
        }
        if (bytes_by_name && types && types->integer(i) == kByteToken && n < 3) {
            bad(format("has a byte token '%s' (number %zu) that is not of the form <0x41>",
                       printable(tokens[i]).c_str(), i));
        }
    }
}

// llama.cpp asserts that no two tokens are the same text. It sees a text up to its first NUL, and names an empty one.
void LlamaRules::check_unique(const std::vector<std::string_view> & tokens) const {
    std::unordered_set<std::string_view> seen;
    seen.reserve(tokens.size());
    std::vector<size_t> empty;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const std::string_view text = tokens[i].substr(0, tokens[i].find('\0'));
        if (text.empty()) {
            empty.push_back(i);
        } else if (!seen.insert(text).second) {
            bad(format("has token '%s' twice (the second time as number %zu): its vocabulary is damaged",
                       printable(text).c_str(), i));
        }
    }
    for (size_t i : empty) {
        const std::string name = format("[EMPTY_%zu]", i);
        if (seen.count(name) != 0) {
            bad(format("has an empty token (number %zu) and one called '%s', which llama.cpp mixes up", i,
                       name.c_str()));
        }
    }
}

// The first byte of a token as RWKV's vocabulary writes it, with \t \n \r \xNN as escapes and \ before any other byte;
// -1 for none. `alone`: the token has no other.
int first_rwkv_byte(std::string_view text, bool * alone) {
    const auto hex = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
    *alone = text.size() == 1;
    if (text[0] != '\\') {
        return static_cast<unsigned char>(text[0]);
    }
    *alone = text.size() == 2;
    switch (text.size() < 2 ? '\0' : text[1]) {
        case '\0': return -1;
        case 't':  return '\t';
        case 'n':  return '\n';
        case 'r':  return '\r';
        case 'x':  break;
        default:   return static_cast<unsigned char>(text[1]);
    }
    *alone = text.size() == 4;
    return text.size() < 4 ? -1 : (hex(text[2]) * 16 + hex(text[3])) & 0xff;
}

// Where no token ends, RWKV's tokenizer starts over from the beginning of the text, for ever. So every byte that some
// token begins with must be a token.
void LlamaRules::check_rwkv(const std::vector<std::string_view> & tokens) const {
    int begins[256] = {}, is_token[256] = {};
    for (size_t i = 0; i < tokens.size(); ++i) {
        const std::string_view text = tokens[i].substr(0, tokens[i].find('\0'));
        bool alone = false;
        const int byte = text.empty() ? '[' : first_rwkv_byte(text, &alone);
        if (byte >= 0) {
            begins[byte] = 1;
            is_token[byte] |= alone ? 1 : 0;
        }
    }
    for (int byte = 0; byte < 256; ++byte) {
        if (begins[byte] && !is_token[byte]) {
            bad(format("has RWKV tokens that begin with byte 0x%02x, but no token for that byte alone", byte));
        }
    }
}

GgufSummary summarize(const GgufFile & file) {
    GgufSummary summary;
    summary.version = file.version();
    summary.alignment = file.alignment();
    summary.data_offset = file.data_offset();
    summary.file_size = file.file_size();
    summary.header_xxh64 = file.header_xxh64();
    summary.architecture = std::string(*file.find("general.architecture")->text());
    summary.tensors = file.tensors();
    return summary;
}

}  // namespace

void check_llama_rules(const GgufFile & file) { LlamaRules(file).run(); }

GgufSummary check_gguf(const std::string & path) {
    const GgufFile file = GgufFile::read(path);
    check_llama_rules(file);
    return summarize(file);
}

GgufSummary check_gguf(const uint8_t * data, size_t size, const std::string & name) {
    const GgufFile file = GgufFile::parse(data, size, name);
    check_llama_rules(file);
    return summarize(file);
}

}  // namespace syrinx
