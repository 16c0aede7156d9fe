// The named stages of a language backbone, and where llama.cpp's graphs compute them. The same names are written once
// more, for the PyTorch side, in sdk_tools/families/llm/stages.py; a test holds the two together.
#pragma once

#include <string>
#include <vector>

namespace syrinx {

// What one tensor of a llama.cpp graph is called here; "" if it is no stage. "embd" (which some
// graphs rename) -> "embeds", "l_out-3" -> "layer.3.hidden", "result_norm" -> "hidden", "result_output" -> "logits".
std::string stage_of_tensor(const char * tensor_name);

// Whether a tensor is the stage "embeds" once more, scaled: what the first block sees then.
bool is_scaled_embeds(const char * tensor_name);

// Whether a tensor is the stage "hidden"; cheap enough to ask for every node of every graph.
bool is_final_hidden(const char * tensor_name);

// A choice of stages: "embeds,layer.*.hidden" and the like, or "all".
class StageSet {
public:
    StageSet() = default;
    // Throws INVALID_ARGUMENT that names the unknown stage and the known ones.
    StageSet(const std::string & list, int n_layer);
    bool contains(const std::string & stage) const;

private:
    std::vector<std::string> stages_;
};

}  // namespace syrinx
