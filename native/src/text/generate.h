// Text generation: prefill, hand-over, then token by token.
#pragma once

#include "backbone/context.h"
#include "core/sampler.h"
#include "syrinx/syrinx.h"

namespace syrinx {

// See syrinx_generate. `prefill` and `decode` may be one context. `result` is kept up to date while it runs, so that
// it is true when an Error ends the call.
void generate(Context & prefill, Context & decode, Sampler & sampler, const std::vector<int32_t> & prompt,
              const syrinx_generate_params & params, int32_t * out_tokens, syrinx_generate_result & result);

}  // namespace syrinx
