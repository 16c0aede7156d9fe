// One sequence on one placement: embeds-only and token decode, cancel, state, probes.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "backbone/model.h"
#include "backbone/probe.h"
#include "syrinx/syrinx.h"

struct ggml_tensor;
struct ggml_threadpool;
struct llama_batch_ext;
struct llama_context;

namespace syrinx {

class ErrorCapture;

// Rows to append: token ids or embedding rows, never both.
struct Input {
    const int32_t * tokens = nullptr;
    const float * embds = nullptr;
    int32_t n = 0;
};

// Which rows' results are wanted, and where they go. Indices ascend.
struct Output {
    const int32_t * rows = nullptr;
    int32_t n_rows = 0;
    float * hidden = nullptr;  // [n_rows][n_embd_out]
    float * logits = nullptr;  // [n_rows][n_vocab]
};

class Context {
public:
    Context(std::shared_ptr<Model> model, const syrinx_context_params & params);
    ~Context();
    Context(const Context &) = delete;
    Context & operator=(const Context &) = delete;

    const Model & model() const { return *model_; }
    const syrinx_context_params & params() const { return params_; }
    int32_t n_ctx() const { return params_.n_ctx; }
    int32_t n_past() const { return n_past_; }

    void reset();

    // Appends rows. On any failure the sequence is as before; where recurrent state cannot go back, it is empty, and
    // the error says so.
    void prefill(const Input & in, const Output & out);

    // cancel() may come from any thread; arm() forgets an earlier one at the start of a call. While a context follows
    // another, a cancel of that one counts here too.
    void cancel() { cancelled_ = true; }
    void arm() { cancelled_ = false; }
    bool cancelled() const { return cancelled_ || (followed_ && followed_->cancelled_); }
    void follow(const Context * other) { followed_ = other; }

    std::vector<uint8_t> save_state();
    void load_state(const uint8_t * blob, size_t size);

    void start_probe(const std::string & stages);
    void write_probe(const std::string & path);

private:
    void release();
    void validate(const Input & in, const Output & out) const;
    int32_t decode_chunk(const Input & in, int32_t begin, int32_t end, const Output & out, int32_t & next_row);
    bool copy_logits(const std::vector<int32_t> & batch_indices, float * logits) const;
    [[noreturn]] void refuse_chunk(int32_t n_past_before, int32_t status, const std::string & rows,
                                   const ErrorCapture & errors);
    [[noreturn]] void roll_back(int32_t n_past_before, syrinx_status status, std::string text);
    bool rewind(int32_t n_past);
    bool on_node(ggml_tensor * tensor, bool ask);
    static bool on_node_c(ggml_tensor * tensor, bool ask, void * self);

    std::shared_ptr<Model> model_;
    syrinx_context_params params_;
    llama_context * context_ = nullptr;
    llama_batch_ext * batch_ = nullptr;
    ggml_threadpool * threads_ = nullptr;        // for single rows
    ggml_threadpool * threads_batch_ = nullptr;  // for several rows; the same pool when the counts are equal
    std::atomic<int32_t> n_past_{0};
    std::atomic<bool> cancelled_{false};
    const Context * followed_ = nullptr;

    // Filled by on_node while llama.cpp computes a chunk.
    float * hidden_next_ = nullptr;
    int32_t hidden_left_ = 0;
    bool node_failed_ = false;
    std::unique_ptr<Probe> probe_;
};

// Moves the sequence of one context into another; see syrinx_handover.
syrinx_handover_report hand_over(Context & from, Context & to);

}  // namespace syrinx
