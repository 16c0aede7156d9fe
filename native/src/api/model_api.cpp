// syrinx_model_* and text.
#include "api/objects.h"
#include "core/gguf_check.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

using namespace syrinx;

void syrinx_model_default_params(syrinx_model_params * params) {
    if (params) {
        *params = {};
        params->struct_size = sizeof *params;
        params->n_gpu_layers = -1;
        params->use_mmap = 1;
        params->use_repack = 1;
    }
}

syrinx_status syrinx_model_open(syrinx_engine * engine, const char * path, const syrinx_model_params * params,
                                syrinx_model ** model) {
    if (model) {
        *model = nullptr;
    }
    return call<EngineObject>(engine, [&](EngineObject & self) {
        require_pointer(path, "path");
        require_pointer(model, "model");
        syrinx_model_params p;
        syrinx_model_default_params(&p);
        if (params) {
            require_struct(params, "params");
            p = *params;
        }
        require_flag("use_mmap", p.use_mmap);
        require_flag("use_repack", p.use_repack);
        require_flag("check_tensors", p.check_tensors);
        const Progress progress = [&](float fraction) {
            const bool stop = p.progress && p.progress("load", fraction, p.progress_user_data) != 0;
            return !stop && !self.cancelled();
        };
        std::shared_ptr<Model> opened = Model::open(path, p, progress);
        *model = static_cast<syrinx_model *>(add_handle(std::make_shared<ModelObject>(std::move(opened))));
    });
}

void syrinx_model_close(syrinx_model * model) { close_handle(model, Kind::kModel); }

syrinx_status syrinx_model_check(syrinx_engine * engine, const char * path) {
    return call<EngineObject>(engine, [&](EngineObject &) {
        require_pointer(path, "path");
        check_gguf(path);
    });
}

syrinx_status syrinx_model_get_facts(syrinx_model * model, syrinx_model_facts * facts) {
    return call<ModelObject>(model, [&](ModelObject & self) {
        require_struct(facts, "facts");
        *facts = self.model->facts();
    });
}

syrinx_status syrinx_model_get_facts_json(syrinx_model * model, char * json, size_t * size) {
    return call<ModelObject>(model, [&](ModelObject & self) { write_text(facts_json(*self.model), json, size); });
}

syrinx_status syrinx_embed_tokens(syrinx_model * model, const int32_t * tokens, int32_t n, float * embds) {
    return call<ModelObject>(model, [&](ModelObject & self) {
        require_pointer(tokens, "tokens");
        require_pointer(embds, "embds");
        require_count(n);
        self.model->embed_tokens(tokens, n, embds);
    });
}

syrinx_status syrinx_tokenize(syrinx_model * model, const char * text, size_t text_bytes, int32_t add_special,
                              int32_t parse_special, int32_t * tokens, int32_t * n) {
    return call<ModelObject>(model, [&](ModelObject & self) {
        require_pointer(text, "text");
        if (text_bytes > INT32_MAX / 2) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "text_bytes is %zu; at most %d can be tokenized", text_bytes,
                 INT32_MAX / 2);
        }
        write_tokens(tokenize(*self.model, std::string(text, text_bytes), add_special != 0, parse_special != 0), tokens,
                     n);
    });
}

syrinx_status syrinx_detokenize(syrinx_model * model, const int32_t * tokens, int32_t n, int32_t special, char * text,
                                size_t * size) {
    return call<ModelObject>(model, [&](ModelObject & self) {
        require_pointer(tokens, "tokens");
        require_pointer(size, "size");
        require_count(n);
        std::string bytes;
        for (int32_t i = 0; i < n; ++i) {
            bytes += token_piece(*self.model, tokens[i], special != 0);
        }
        write_sized(bytes.data(), bytes.size(), text, size, "bytes");
    });
}

syrinx_status syrinx_apply_chat_template(syrinx_model * model, const syrinx_message * messages, int32_t n_messages,
                                         int32_t add_generation_prompt, char * text, size_t * text_size,
                                         int32_t * tokens, int32_t * n) {
    return call<ModelObject>(model, [&](ModelObject & self) {
        require_pointer(messages, "messages");
        if (n_messages < 1) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "n_messages is %d; there must be at least one", n_messages);
        }
        std::vector<Message> list;
        for (int32_t i = 0; i < n_messages; ++i) {
            require_pointer(messages[i].role, "messages[].role");
            require_pointer(messages[i].content, "messages[].content");
            list.push_back({messages[i].role, messages[i].content});
        }
        const Prompt prompt = apply_chat_template(*self.model, list, add_generation_prompt != 0);
        if (text_size) {
            write_text(prompt.text, text, text_size);
        }
        if (n) {
            write_tokens(prompt.tokens, tokens, n);
        }
    });
}
