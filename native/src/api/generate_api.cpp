// syrinx_sampler_* and syrinx_generate.
#include "api/objects.h"
#include "text/generate.h"

using namespace syrinx;

void syrinx_sampler_default_params(syrinx_sampler_params * params) {
    if (params) {
        *params = {};
        params->struct_size = sizeof *params;
        params->temperature = 0.0f;
        params->top_p = 1.0f;
        params->repetition_penalty = 1.0f;
        params->penalty_window = -1;
    }
}

syrinx_status syrinx_sampler_create(syrinx_engine * engine, const syrinx_sampler_params * params,
                                    syrinx_sampler ** sampler) {
    if (sampler) {
        *sampler = nullptr;
    }
    return call<EngineObject>(engine, [&](EngineObject &) {
        require_struct(params, "params");
        require_pointer(sampler, "sampler");
        *sampler = static_cast<syrinx_sampler *>(add_handle(std::make_shared<SamplerObject>(*params)));
    });
}

void syrinx_sampler_close(syrinx_sampler * sampler) { close_handle(sampler, Kind::kSampler); }

syrinx_status syrinx_sampler_reset(syrinx_sampler * sampler) {
    return call<SamplerObject>(sampler, [](SamplerObject & self) { self.sampler.reset(); });
}

syrinx_status syrinx_sampler_sample(syrinx_sampler * sampler, const float * logits, int32_t n, int32_t * token) {
    return call<SamplerObject>(sampler, [&](SamplerObject & self) {
        require_pointer(logits, "logits");
        require_pointer(token, "token");
        *token = self.sampler.sample(logits, n);
    });
}

syrinx_status syrinx_sampler_accept(syrinx_sampler * sampler, int32_t token) {
    return call<SamplerObject>(sampler, [&](SamplerObject & self) { self.sampler.accept(token); });
}

syrinx_status syrinx_sampler_probs(syrinx_sampler * sampler, const float * logits, int32_t n, float * probs) {
    return call<SamplerObject>(sampler, [&](SamplerObject & self) {
        require_pointer(logits, "logits");
        require_pointer(probs, "probs");
        self.sampler.probs(logits, n, probs);
    });
}

void syrinx_generate_default_params(syrinx_generate_params * params) {
    if (params) {
        *params = {};
        params->struct_size = sizeof *params;
        params->max_tokens = 256;
    }
}

namespace {

// Enters a second object of a call for its length, or fails with what that object said.
void require_entered(const Entered & entered, const char * name) {
    if (entered.status() != SYRINX_OK) {
        fail(entered.status(), "the %s is in use by another call, or closed", name);
    }
}

}  // namespace

syrinx_status syrinx_generate(syrinx_context * prefill, syrinx_context * decode, syrinx_sampler * sampler,
                              const int32_t * tokens, int32_t n, const syrinx_generate_params * params,
                              int32_t * out_tokens, syrinx_generate_result * result) {
    return call<ContextObject>(decode, [&](ContextObject & self) {
        require_struct(params, "params");
        require_struct(result, "result");
        if (n < 1) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "the prompt has %d tokens; it needs at least one", n);
        }
        require_pointer(tokens, "tokens");
        const auto sampling = find<SamplerObject>(sampler);
        const auto first = find<ContextObject>(prefill);
        if (!sampling || !first) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "the %s is NULL or closed", sampling ? "prefill context" : "sampler");
        }
        const Entered sampler_entered(*sampling);
        require_entered(sampler_entered, "sampler");
        *result = {};
        result->struct_size = sizeof *result;
        const std::vector<int32_t> prompt(tokens, tokens + n);
        if (first.get() == &self) {
            generate(self.context, self.context, sampling->sampler, prompt, *params, out_tokens, *result);
            return;
        }
        const Entered prefill_entered(*first);
        require_entered(prefill_entered, "prefill context");
        first->arm();
        generate(first->context, self.context, sampling->sampler, prompt, *params, out_tokens, *result);
    });
}
