#include "backbone/context.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "backbone/runtime.h"
#include "core/error.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "llama.h"

namespace syrinx {

namespace {

constexpr int32_t kDefaultMaxCtx = 8192;   // a model trained for 128k positions must not take gigabytes unasked
constexpr int32_t kDefaultMaxThreads = 4;  // more than a phone's big cores collapses throughput
constexpr llama_seq_id kSequence = 0;
constexpr char kOrDefault[] = ", or 0 for the default";

// Beside llama_process's own codes.
constexpr int32_t kNoHead = 1000;      // logits were asked for, and the model has none
constexpr int32_t kNodeFailed = 1001;  // no memory for what the graph's nodes were asked for

ggml_type to_ggml(int32_t type, const char * option) {
    switch (type) {
        case SYRINX_KV_F16:  return GGML_TYPE_F16;
        case SYRINX_KV_F32:  return GGML_TYPE_F32;
        case SYRINX_KV_BF16: return GGML_TYPE_BF16;
        case SYRINX_KV_Q8_0: return GGML_TYPE_Q8_0;
        case SYRINX_KV_Q4_0: return GGML_TYPE_Q4_0;
    }
    fail(SYRINX_ERR_INVALID_ARGUMENT, "%s: %d is no KV cache type", option, type);
}

// otherwise: what to say of a further value that stands for the default.
void require_range(const char * option, int64_t value, int64_t low, int64_t high, const char * otherwise = "") {
    if (value < low || value > high) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "%s is %lld; it must be %lld to %lld%s", option,
             static_cast<long long>(value), static_cast<long long>(low), static_cast<long long>(high), otherwise);
    }
}

// Fills in what 0 stands for, and checks every field.
syrinx_context_params resolve(syrinx_context_params p, const Model & model) {
    const int32_t train = std::max(model.facts().n_ctx_train, 1);
    // Half: the other threads are siblings of the same cores, or little cores, or the application's. ggml's threads wait
    // for each other by spinning, so one that has to share its core stalls them all.
    const int32_t half = static_cast<int32_t>(std::thread::hardware_concurrency() / 2);
    p.n_ctx = p.n_ctx == 0 ? std::min(train, kDefaultMaxCtx) : p.n_ctx;
    require_range("n_ctx", p.n_ctx, 1, 1 << 24, kOrDefault);
    // Learned positions end with their table; llama.cpp would assert on one of its compute threads.
    for (const GgufTensor & tensor : model.file().tensors) {
        if (tensor.name == "position_embd.weight" && p.n_ctx > tensor.ne[1]) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "n_ctx is %d, but the model has learned only %lld positions", p.n_ctx,
                 static_cast<long long>(tensor.ne[1]));
        }
    }
    p.n_batch = std::min(p.n_batch, p.n_ctx);
    require_range("n_batch", p.n_batch, 1, p.n_ctx);
    p.n_outputs = std::min(p.n_outputs, p.n_batch);
    require_range("n_outputs", p.n_outputs, 1, p.n_batch);
    require_range("n_seq_max", p.n_seq_max, 1, static_cast<int64_t>(llama_max_parallel_sequences()));
    p.n_threads = p.n_threads == 0 ? std::clamp(half, 1, kDefaultMaxThreads) : p.n_threads;
    p.n_threads_batch = p.n_threads_batch == 0 ? p.n_threads : p.n_threads_batch;
    require_range("n_threads", p.n_threads, 1, GGML_MAX_N_THREADS, kOrDefault);
    require_range("n_threads_batch", p.n_threads_batch, 1, GGML_MAX_N_THREADS, kOrDefault);
    require_range("poll", p.poll, 0, 100);
    const bool quantized_v = p.type_v == SYRINX_KV_Q8_0 || p.type_v == SYRINX_KV_Q4_0;
    if (quantized_v && !p.flash_attention) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "type_v: a quantized V needs flash_attention 1");
    }
    return p;
}

llama_context_params to_llama(const syrinx_context_params & p) {
    llama_context_params out = llama_context_default_params();
    out.n_ctx = static_cast<uint32_t>(p.n_ctx);
    out.n_batch = static_cast<uint32_t>(p.n_batch);
    out.n_ubatch = static_cast<uint32_t>(p.n_batch);
    out.n_seq_max = static_cast<uint32_t>(p.n_seq_max);
    // llama.cpp reserves for the worst case (and asserts on more); one row a sequence is the least it takes.
    out.n_outputs_max = static_cast<uint32_t>(std::max(p.n_outputs, p.n_seq_max));
    out.n_threads = p.n_threads;
    out.n_threads_batch = p.n_threads_batch;
    out.flash_attn_type = p.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    out.type_k = to_ggml(p.type_k, "type_k");
    out.type_v = to_ggml(p.type_v, "type_v");
    out.swa_full = p.full_swa != 0;
    out.kv_unified = p.kv_unified != 0;
    // With "embeddings" on, llama.cpp would compute logits for every row; the hidden state is read by on_node instead.
    out.embeddings = false;
    out.no_perf = true;
    return out;
}

// A row whose sum of squares is no float would be normalized to zeros: finite, plausible and wrong.
void check_row(const float * values, size_t width, size_t row) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
        squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
    if (squares <= std::numeric_limits<float>::max()) {
        return;
    }
    for (size_t i = 0; i < width; ++i) {
        if (!std::isfinite(values[i])) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "embedding row %zu holds %f at column %zu", row,
                 static_cast<double>(values[i]), i);
        }
    }
    fail(SYRINX_ERR_INVALID_ARGUMENT,
         "embedding row %zu is too large (length %g): the model's first norm would overflow", row, std::sqrt(squares));
}

ggml_threadpool * make_pool(int32_t n_threads, int32_t poll) {
    ggml_threadpool_params params = ggml_threadpool_params_default(n_threads);
    params.poll = static_cast<uint32_t>(poll);
    const auto new_pool = reinterpret_cast<decltype(&ggml_threadpool_new)>(cpu_function("ggml_threadpool_new"));
    ggml_threadpool * pool = new_pool(&params);
    if (!pool) {
        fail(SYRINX_ERR_OUT_OF_MEMORY, "cannot start %d threads", n_threads);
    }
    return pool;
}

void free_pool(ggml_threadpool * pool) {
    reinterpret_cast<decltype(&ggml_threadpool_free)>(cpu_function("ggml_threadpool_free"))(pool);
}

}  // namespace

Context::Context(std::shared_ptr<Model> model, const syrinx_context_params & params)
    : model_(std::move(model)), params_(resolve(params, *model_)) {
    llama_context_params p = to_llama(params_);
    p.cb_eval = on_node_c;
    p.cb_eval_user_data = this;
    ErrorCapture errors;
    AbortGuard guard;
    try {
        context_ = llama_init_from_model(model_->get(), p);
        if (!context_) {
            fail(SYRINX_ERR_UNSUPPORTED, "llama.cpp could not create a context for '%s': %s", model_->path().c_str(),
                 errors.text("out of memory? a smaller n_ctx or n_batch needs less").c_str());
        }
        batch_ = llama_batch_ext_init(context_);
        // A pool that lives as long as the context: without one, ggml starts and joins threads for every graph.
        if (params_.n_threads > 1 || params_.n_threads_batch > 1) {
            threads_ = make_pool(params_.n_threads, params_.poll);
            const bool same = params_.n_threads_batch == params_.n_threads;
            threads_batch_ = same ? threads_ : make_pool(params_.n_threads_batch, params_.poll);
            llama_attach_threadpool(context_, threads_, threads_batch_);
        }
    } catch (...) {
        release();
        throw;
    }
    // llama.cpp rounds up; with several sequences it divides.
    params_.n_ctx = std::min(params_.n_ctx, static_cast<int32_t>(llama_n_ctx_seq(context_)));
    llama_set_abort_callback(context_, [](void * self) { return static_cast<Context *>(self)->cancelled(); }, this);
}

Context::~Context() { release(); }

void Context::release() {
    if (batch_) {
        llama_batch_ext_free(batch_);
    }
    if (context_) {
        llama_free(context_);
    }
    if (threads_batch_ && threads_batch_ != threads_) {
        free_pool(threads_batch_);
    }
    if (threads_) {
        free_pool(threads_);
    }
}

void Context::reset() {
    llama_memory_clear(llama_get_memory(context_), /*data=*/true);
    n_past_ = 0;
}

void Context::validate(const Input & in, const Output & out) const {
    require_range("n", in.n, 1, INT32_MAX);
    for (int32_t i = 0; i < out.n_rows; ++i) {
        const int32_t low = i == 0 ? 0 : out.rows[i - 1] + 1;
        if (out.rows[i] < low || out.rows[i] >= in.n) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "rows[%d] is %d: rows must ascend and lie in 0..%d", i, out.rows[i],
                 in.n - 1);
        }
    }
    if (in.n > params_.n_ctx - n_past_) {
        fail(SYRINX_ERR_CONTEXT_FULL,
             "%d rows do not fit: %d of %d positions are taken; reset the context or open it "
             "with a larger n_ctx",
             in.n, n_past(), params_.n_ctx);
    }
    if (in.tokens) {
        for (int32_t i = 0; i < in.n; ++i) {
            if (in.tokens[i] < 0 || in.tokens[i] >= model_->facts().n_vocab) {
                fail(SYRINX_ERR_INVALID_ARGUMENT, "token %d at index %d is outside the vocabulary of %d", in.tokens[i],
                     i, model_->facts().n_vocab);
            }
        }
        return;
    }
    const syrinx_embedding_scale scale = model_->facts().embedding_scale;
    if (scale != SYRINX_SCALE_NONE && !params_.embeds_are_scaled) {
        fail(SYRINX_ERR_UNSUPPORTED,
             "%s multiplies token embeddings, and rows given as embeddings are taken as they "
             "are: use syrinx_embed_tokens, or rows that carry the multiplier, and say so with embeds_are_scaled 1",
             model_->facts().architecture);
    }
    const size_t width = static_cast<size_t>(model_->facts().n_embd);
    for (size_t row = 0; row < static_cast<size_t>(in.n); ++row) {
        check_row(in.embds + width * row, width, row);
    }
}

void Context::prefill(const Input & in, const Output & out) {
    validate(in, out);
    const int32_t before = n_past();
    hidden_next_ = out.hidden;
    hidden_left_ = out.hidden ? out.n_rows : 0;
    node_failed_ = false;
    int32_t next_row = 0;
    ErrorCapture errors([this] { return cancelled(); });
    for (int32_t begin = 0, end = 0; begin < in.n; begin = end) {
        end = std::min(in.n, begin + params_.n_batch);
        if (next_row + params_.n_outputs < out.n_rows) {
            end = std::min(end, out.rows[next_row + params_.n_outputs]);  // one output more than there is room for
        }
        const int32_t status = decode_chunk(in, begin, end, out, next_row);
        if (status == 2 || cancelled()) {
            roll_back(before, SYRINX_ERR_CANCELLED, "the call was cancelled");
        }
        if (status != 0) {
            refuse_chunk(before, status, format("rows %d to %d", begin, end - 1), errors);
        }
        n_past_ += end - begin;
    }
    if (hidden_left_ != 0) {
        roll_back(before, SYRINX_ERR_UNSUPPORTED,
                  format("the graph of %s names no final hidden state (result_norm)", model_->facts().architecture));
    }
    if (probe_ && in.tokens) {
        probe_->add_ids(in.tokens, in.n);
    }
}

void Context::refuse_chunk(int32_t n_past_before, int32_t status, const std::string & rows,
                           const ErrorCapture & errors) {
    if (status == kNoHead) {
        roll_back(n_past_before, SYRINX_ERR_UNSUPPORTED,
                  format("%s has no output head: ask for hidden, not logits", model_->facts().architecture));
    }
    if (status == kNodeFailed) {
        roll_back(n_past_before, SYRINX_ERR_OUT_OF_MEMORY, "no memory to keep the results of " + rows);
    }
    roll_back(n_past_before, status == 1 ? SYRINX_ERR_CONTEXT_FULL : SYRINX_ERR_INTERNAL,
              format("llama.cpp could not compute %s (code %d): %s", rows.c_str(), status,
                     errors.text("no reason was logged").c_str()));
}

int32_t Context::decode_chunk(const Input & in, int32_t begin, int32_t end, const Output & out, int32_t & next_row) {
    const size_t width = static_cast<size_t>(model_->facts().n_embd);
    const bool several = model_->positions_per_row() == 4;
    std::vector<int32_t> output_indices;
    const int32_t first_row = next_row;
    llama_batch_ext_clear(batch_);
    for (int32_t i = begin; i < end; ++i) {
        int32_t index;
        if (in.tokens) {
            index = llama_batch_ext_add_token(batch_, kSequence, in.tokens[i]);
        } else {
            index = llama_batch_ext_add_embd(batch_, kSequence, {in.embds + width * static_cast<size_t>(i), 1, width});
        }
        // M-RoPE: the text axes (time, height, width) move together, the fourth stays 0. For token rows llama.cpp
        // spreads the first value itself; for embedding rows it takes all four as they are.
        const llama_pos pos = n_past_ + (i - begin);
        const llama_pos positions[4] = {pos, pos, pos, 0};
        const bool wanted = next_row < out.n_rows && out.rows[next_row] == i;
        if (index < 0 || !llama_batch_ext_set_pos(batch_, index, several ? positions : &pos) ||
            !llama_batch_ext_set_output_logits(batch_, index, wanted)) {
            return -1;
        }
        if (wanted) {
            output_indices.push_back(index);
            ++next_row;
        }
    }
    const int64_t n_probed = probe_ ? probe_->n_rows("embeds") : 0;
    const int32_t status = llama_process(context_, LLAMA_PROCESS_TYPE_DECODE, batch_);
    if (status == 0 && probe_ && in.embds && probe_->wants("embeds") && probe_->n_rows("embeds") == n_probed) {
        // Rows that the graph takes as they are belong to none of its nodes.
        probe_->add_rows("embeds", in.embds + width * static_cast<size_t>(begin), end - begin,
                         static_cast<int64_t>(width));
    }
    if (node_failed_) {
        return kNodeFailed;
    }
    const size_t n_vocab = static_cast<size_t>(model_->facts().n_vocab);
    if (status == 0 && out.logits &&
        !copy_logits(output_indices, out.logits + n_vocab * static_cast<size_t>(first_row))) {
        return kNoHead;
    }
    return status;
}

// Whether there were logits to copy.
bool Context::copy_logits(const std::vector<int32_t> & batch_indices, float * logits) const {
    const size_t n_vocab = static_cast<size_t>(model_->facts().n_vocab);
    for (int32_t index : batch_indices) {
        const float * row = llama_get_logits_ith(context_, index);
        if (!row) {
            return false;
        }
        logits = std::copy(row, row + n_vocab, logits);
    }
    return true;
}

// Whether the sequence is exactly what it was at n_past again.
bool Context::rewind(int32_t n_past) {
    llama_memory_t memory = llama_get_memory(context_);
    if (!llama_memory_seq_rm(memory, kSequence, n_past, -1)) {
        return false;
    }
    // A sliding-window cache recycles cells that the window has passed; rows before the cut may be gone.
    const int32_t n_swa = model_->facts().n_swa;
    const int32_t needed = std::max(0, n_past - n_swa);
    return n_swa == 0 || params_.full_swa || llama_memory_seq_pos_min(memory, kSequence) <= needed;
}

void Context::roll_back(int32_t n_past_before, syrinx_status status, std::string text) {
    if (n_past_before == 0) {
        reset();
    } else if (rewind(n_past_before)) {
        n_past_ = n_past_before;
    } else {
        reset();
        text += "; the model's state cannot go back, so the sequence was emptied";
    }
    throw Error(status, text);
}

bool Context::on_node_c(ggml_tensor * tensor, bool ask, void * user_data) {
    auto * self = static_cast<Context *>(user_data);
    try {
        return self->on_node(tensor, ask);
    } catch (...) {  // must not unwind through the scheduler, half-way through a graph
        self->node_failed_ = true;
        return true;
    }
}

// llama.cpp asks for every node whether its result is wanted, and calls again once it is computed.
bool Context::on_node(ggml_tensor * tensor, bool ask) {
    if (hidden_left_ == 0 && !probe_) {
        return !ask;
    }
    const bool hidden = hidden_left_ > 0 && is_final_hidden(tensor->name);
    const std::string stage = probe_ ? stage_of_tensor(tensor->name) : "";
    const bool probed = probe_ && !stage.empty() && probe_->wants(stage);
    if (ask) {
        return hidden || probed;
    }
    if (hidden) {
        const int32_t n = static_cast<int32_t>(std::min<int64_t>(tensor->ne[1], hidden_left_));
        const size_t bytes = static_cast<size_t>(n) * static_cast<size_t>(tensor->ne[0]) * sizeof(float);
        if (tensor->ne[0] == model_->facts().n_embd_out && bytes > 0) {
            ggml_backend_tensor_get(tensor, hidden_next_, 0, bytes);
            hidden_next_ += static_cast<size_t>(n) * static_cast<size_t>(tensor->ne[0]);
            hidden_left_ -= n;
        }
    }
    if (probed) {
        probe_->capture(stage, tensor, is_scaled_embeds(tensor->name));
    }
    return true;
}

void Context::start_probe(const std::string & stages) {
    probe_ = std::make_unique<Probe>(StageSet(stages, model_->facts().n_layer));
}

void Context::write_probe(const std::string & path) {
    if (!probe_) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "no probe was started on this context");
    }
    probe_->write(path, model_->facts().fingerprint, model_->path());
    probe_.reset();
}

}  // namespace syrinx
