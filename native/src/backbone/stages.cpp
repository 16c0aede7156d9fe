#include "backbone/stages.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace syrinx {

static bool is_one_of(const char * name, std::initializer_list<const char *> names) {
    return std::any_of(names.begin(), names.end(), [&](const char * n) { return std::strcmp(name, n) == 0; });
}

bool is_final_hidden(const char * tensor_name) { return std::strcmp(tensor_name, "result_norm") == 0; }

bool is_scaled_embeds(const char * tensor_name) { return is_one_of(tensor_name, {"inp_scaled", "inp_embd_scaled"}); }

std::string stage_of_tensor(const char * tensor_name) {
    static const char layer_prefix[] = "l_out-";
    if (is_one_of(tensor_name, {"embd", "model.input_embed", "model.embed_tokens"}) || is_scaled_embeds(tensor_name)) {
        return "embeds";
    }
    if (is_final_hidden(tensor_name)) {
        return "hidden";
    }
    if (std::strcmp(tensor_name, "result_output") == 0) {
        return "logits";
    }
    if (std::strncmp(tensor_name, layer_prefix, sizeof layer_prefix - 1) == 0) {
        const char * number = tensor_name + sizeof layer_prefix - 1;
        char * end = nullptr;
        const long layer = std::strtol(number, &end, 10);
        // Views and copies of a stage carry a suffix, such as "l_out-3 (view)".
        return end != number && *end == '\0' ? format("layer.%ld.hidden", layer) : "";
    }
    return "";
}

static std::vector<std::string> layer_stages(int n_layer) {
    std::vector<std::string> names;
    for (int i = 0; i < n_layer; ++i) {
        names.push_back(format("layer.%d.hidden", i));
    }
    return names;
}

StageSet::StageSet(const std::string & list, int n_layer) {
    const std::vector<std::string> layers = layer_stages(n_layer);
    size_t begin = 0;
    while (begin <= list.size()) {
        const size_t end = std::min(list.find(',', begin), list.size());
        const std::string name = list.substr(begin, end - begin);
        begin = end + 1;
        const bool every = name == "all";
        if (every || name == "layer.*.hidden") {
            stages_.insert(stages_.end(), layers.begin(), layers.end());
        }
        if (every) {
            stages_.insert(stages_.end(), {"embeds", "hidden", "logits"});
        } else if (name == "embeds" || name == "hidden" || name == "logits" ||
                   std::find(layers.begin(), layers.end(), name) != layers.end()) {
            stages_.push_back(name);
        } else if (name != "layer.*.hidden") {
            fail(SYRINX_ERR_INVALID_ARGUMENT,
                 "unknown stage '%s'; the stages are embeds, layer.0.hidden to "
                 "layer.%d.hidden (layer.*.hidden), hidden, logits, all",
                 name.c_str(), n_layer - 1);
        }
    }
}

bool StageSet::contains(const std::string & stage) const {
    return std::find(stages_.begin(), stages_.end(), stage) != stages_.end();
}

}  // namespace syrinx
