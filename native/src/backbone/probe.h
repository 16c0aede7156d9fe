// Captures named stages while llama.cpp computes, and writes them to a GGUF file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backbone/stages.h"

struct ggml_tensor;

namespace syrinx {

class Probe {
public:
    explicit Probe(StageSet stages) : stages_(std::move(stages)) {}

    bool wants(const std::string & stage) const { return stages_.contains(stage); }
    // Appends the tensor's rows to the stage. The tensor is F32, [width, rows].
    // replace: in place of the rows that were appended last.
    void capture(const std::string & stage, const ggml_tensor * tensor, bool replace);
    // The same for rows [n][width] that no graph node holds.
    void add_rows(const std::string & stage, const float * rows, int64_t n, int64_t width);
    int64_t n_rows(const std::string & stage) const;
    // "prompt_ids" is not computed by a graph: the caller of a prefill with tokens adds it.
    void add_ids(const int32_t * tokens, int32_t n);

    // One F32 tensor a stage, the ids and the fingerprint as metadata. Temporary name, then renamed: whole or not at all.
    // A symbolic link is followed; INVALID_ARGUMENT if the path is the model's own file or no regular file.
    void write(const std::string & path, uint64_t fingerprint, const std::string & model_path) const;

private:
    struct Rows {
        int64_t width = 0;
        std::vector<float> values;
    };
    StageSet stages_;
    std::map<std::string, Rows> captured_;
    std::vector<int32_t> prompt_ids_;
};

}  // namespace syrinx
