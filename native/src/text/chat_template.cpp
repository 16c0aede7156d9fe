#include "text/chat_template.h"

#include <algorithm>

#include "core/error.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "jinja/value.h"
#include "llama.h"
#include "text/tokenizer.h"

namespace syrinx {

namespace {

// The role becomes part of the template's own text ("<|im_start|>" + role), so it must not smuggle anything in.
void require_plain_role(const std::string & role) {
    const bool plain = !role.empty() && std::all_of(role.begin(), role.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
    if (!plain) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "role '%s' is no plain word such as system, user or assistant", role.c_str());
    }
}

jinja::value string_value(const std::string & text, bool is_input) {
    auto value = jinja::mk_val<jinja::value_string>(text);
    if (is_input) {
        value->val_str.mark_input();
    }
    return value;
}

jinja::value message_values(const std::vector<Message> & messages) {
    auto list = jinja::mk_val<jinja::value_array>();
    for (const Message & message : messages) {
        require_plain_role(message.role);
        auto entry = jinja::mk_val<jinja::value_object>();
        entry->insert("role", string_value(message.role, false));
        entry->insert("content", string_value(message.content, true));
        list->push_back(entry);
    }
    return list;
}

std::string special_token(const Model & model, int32_t token) {
    return token == LLAMA_TOKEN_NULL ? "" : token_piece(model, token, /*special=*/true);
}

std::vector<jinja::string_part> render(const Model & model, const std::string & source,
                                       const std::vector<Message> & messages, bool add_generation_prompt) {
    try {
        jinja::lexer lexer;
        const jinja::program program = jinja::parse_from_tokens(lexer.tokenize(source));
        jinja::context context(source);
        context.set_val("messages", message_values(messages));
        context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(add_generation_prompt));
        context.set_val("bos_token", string_value(special_token(model, llama_vocab_bos(model.vocab())), false));
        context.set_val("eos_token", string_value(special_token(model, llama_vocab_eos(model.vocab())), false));
        jinja::runtime runtime(context);
        return jinja::runtime::gather_string_parts(runtime.execute(program))->val_str.parts;
    } catch (const Error &) {
        throw;
    } catch (const std::exception & e) {
        fail(SYRINX_ERR_UNSUPPORTED, "the chat template of '%s' did not render these messages: %s",
             model.path().c_str(), e.what());
    }
}

// Whether user text spells a control token.
bool spells_control_token(const Model & model, const std::string & text) {
    return tokenize(model, text, false, true) != tokenize(model, text, false, false);
}

}  // namespace

Prompt apply_chat_template(const Model & model, const std::vector<Message> & messages, bool add_generation_prompt) {
    model.require_tokenizer();
    const char * source = llama_model_chat_template(model.get(), nullptr);
    if (!source) {
        fail(SYRINX_ERR_UNSUPPORTED, "'%s' brings no chat template (tokenizer.chat_template): give a raw prompt",
             model.path().c_str());
    }
    Prompt prompt;
    bool contains_control = false;
    const auto parts = render(model, source, messages, add_generation_prompt);
    for (const auto & part : parts) {
        prompt.text += part.val;
        contains_control = contains_control || (part.is_input && spells_control_token(model, part.val));
    }
    // Tokenized in one piece, ids equal Hugging Face's, merges across the seams included. Only where user text spells
    // a control token is each part tokenized by itself, so that the spelling stays text.
    if (!contains_control) {
        prompt.tokens = tokenize(model, prompt.text, /*add_special=*/false, /*parse_special=*/true);
        return prompt;
    }
    for (const auto & part : parts) {
        const auto tokens = tokenize(model, part.val, /*add_special=*/false, /*parse_special=*/!part.is_input);
        prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
    }
    return prompt;
}

}  // namespace syrinx
