// Weights and vocabulary of one GGUF file on one device.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/gguf_check.h"
#include "syrinx/syrinx.h"

struct llama_model;
struct llama_vocab;

namespace syrinx {

// Progress in 0..1; false cancels.
using Progress = std::function<bool(float)>;

class Model {
public:
    // Checks the file, then has llama.cpp load it. Throws Error; nothing is left behind.
    static std::shared_ptr<Model> open(const std::string & path, const syrinx_model_params & params,
                                       const Progress & progress);
    ~Model();
    Model(const Model &) = delete;
    Model & operator=(const Model &) = delete;

    llama_model * get() const { return model_; }
    const llama_vocab * vocab() const { return vocab_; }
    const std::string & path() const { return path_; }
    const std::string & device() const { return device_; }  // that holds the weights; "CPU" for none other
    const syrinx_model_facts & facts() const { return facts_; }
    const GgufSummary & file() const { return file_; }

    // Positions an embedding row needs: 4 for M-RoPE models, else 1.
    int positions_per_row() const;

    // Rows of the token table, scaled as the graph scales looked-up rows. embds: [n][n_embd].
    void embed_tokens(const int32_t * tokens, int32_t n, float * embds) const;

    // Throws UNSUPPORTED when the file brings no tokenizer (llama.cpp would abort on use).
    void require_tokenizer() const;

private:
    Model() = default;
    void read_facts();

    std::string path_;
    std::string device_;
    GgufSummary file_;
    llama_model * model_ = nullptr;
    const llama_vocab * vocab_ = nullptr;
    syrinx_model_facts facts_ = {};
};

// [{"name","description","type","memory_total","memory_free"}, ...] of every device that can compute.
std::string devices_json();

// syrinx_model_get_facts_json.
std::string facts_json(const Model & model);

}  // namespace syrinx
