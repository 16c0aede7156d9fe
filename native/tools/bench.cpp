// syrinx bench
#include <algorithm>

#include "commands.h"
#include "interrupt.h"

namespace {

struct Workload {
    std::vector<int32_t> prompt;  // fixed pseudo-random ids: what they are changes nothing about the work
    std::vector<int32_t> generated;
    bool embeds;
    std::vector<float> prompt_rows, generated_rows;
};

std::vector<int32_t> pseudo_random_tokens(int32_t n, int32_t n_vocab, uint32_t seed) {
    std::vector<int32_t> tokens(static_cast<size_t>(n));
    for (int32_t & token : tokens) {
        seed = seed * 1664525u + 1013904223u;
        token = static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(n_vocab));
    }
    return tokens;
}

std::vector<float> embed(const Model & model, const std::vector<int32_t> & tokens, int32_t width) {
    std::vector<float> rows(tokens.size() * static_cast<size_t>(width));
    check(syrinx_embed_tokens(model.handle, tokens.data(), static_cast<int32_t>(tokens.size()), rows.data()),
          model.handle);
    return rows;
}

Json measure(const Workload & work, syrinx_context * prefill, syrinx_context * decode) {
    const int32_t n = static_cast<int32_t>(work.prompt.size());
    const size_t width = static_cast<size_t>(syrinx_context_n_embd(decode));
    std::vector<float> logits(static_cast<size_t>(syrinx_context_n_vocab(decode)));
    std::vector<float> hidden(static_cast<size_t>(syrinx_context_n_embd_out(decode)));
    // A speech backbone is asked for hidden and logits, a language model for logits only.
    float * const hidden_out = work.embeds ? hidden.data() : nullptr;
    check(syrinx_context_reset(prefill), prefill);
    check(syrinx_context_reset(decode), decode);
    const double start = now_ms();
    if (work.embeds) {
        check(syrinx_prefill_embeds(prefill, work.prompt_rows.data(), n, nullptr, 1, hidden_out, logits.data()),
              prefill);
    } else {
        check(syrinx_prefill_tokens(prefill, work.prompt.data(), n, nullptr, 1, nullptr, logits.data()), prefill);
    }
    const double prefilled = now_ms();
    if (prefill != decode) {
        check(syrinx_handover(prefill, decode, nullptr), decode);
    }
    const double handed_over = now_ms();
    for (size_t i = 0; i < work.generated.size(); ++i) {
        if (work.embeds) {
            check(syrinx_decode_embed(decode, work.generated_rows.data() + i * width, logits.data(), hidden_out),
                  decode);
        } else {
            check(syrinx_decode_token(decode, work.generated[i], logits.data(), nullptr), decode);
        }
    }
    return {{"prefill_ms", prefilled - start},
            {"handover_ms", handed_over - prefilled},
            {"decode_ms", now_ms() - handed_over},
            {"n_prompt", n},
            {"n_generated", work.generated.size()}};
}

Workload make_workload(const Model & model, const Args & args, const Json & facts) {
    Workload work;
    const std::string input = args.text("input", "tokens");
    if (input != "tokens" && input != "embeds") {
        throw UsageError("--input: '" + input + "' is neither tokens nor embeds");
    }
    work.embeds = input == "embeds";
    const int32_t n_vocab = facts["n_vocab"];
    work.prompt = pseudo_random_tokens(args.integer("prompt-tokens", 128), n_vocab, 1);
    work.generated = pseudo_random_tokens(args.integer("gen-tokens", 32), n_vocab, 2);
    if (work.embeds) {
        work.prompt_rows = embed(model, work.prompt, facts["n_embd"]);
        work.generated_rows = embed(model, work.generated, facts["n_embd"]);
    }
    return work;
}

}  // namespace

Json run_bench(int argc, char ** argv) {
    std::vector<std::string> options = session_options;
    options.insert(options.end(), {"prompt-tokens", "gen-tokens", "repeats", "warmup", "input"});
    const Args args(argc, argv, options, {"dual"});
    if (args.integer("prompt-tokens", 1) < 1 || args.integer("gen-tokens", 0) < 0 || args.integer("repeats", 1) < 1) {
        throw UsageError("--prompt-tokens and --repeats must be at least 1, --gen-tokens at least 0");
    }
    CancelOnInterrupt interrupt;
    const Engine engine;
    const Model model(engine, args);
    const Json facts = model.facts();
    const Workload work = make_workload(model, args, facts);
    syrinx_context_params params = context_params(args);
    if (!args.has("ctx")) {
        params.n_ctx = static_cast<int32_t>(work.prompt.size() + work.generated.size());
    }
    const Context decode(model, params);
    const std::unique_ptr<Context> prefill(args.has("dual") ? new Context(model, params) : nullptr);
    interrupt.watch(decode.handle);
    syrinx_context * const first = prefill ? prefill->handle : decode.handle;
    for (int32_t i = 0; i < args.integer("warmup", 1); ++i) {
        measure(work, first, decode.handle);
    }
    Json runs = Json::array();
    for (int32_t i = 0; i < args.integer("repeats", 5); ++i) {
        runs.push_back(measure(work, first, decode.handle));
    }
    return {{"schema", 1},
            {"version", syrinx_version()},
            {"cpu_variant", engine.cpu_variant()},
            {"model", facts},
            {"params",
             {{"input", work.embeds ? "embeds" : "tokens"},
              {"n_ctx", syrinx_context_n_ctx(decode.handle)},
              {"n_batch", params.n_batch},
              {"kv", args.text("kv", "f16")},
              {"flash_attention", params.flash_attention != 0},
              {"threads", args.integer("threads", 0)},
              {"threads_batch", args.integer("threads-batch", 0)},
              {"warmup", args.integer("warmup", 1)},
              {"dual", args.has("dual")}}},
            {"load_ms", model.load_ms},
            {"runs", runs},
            {"peak_rss_bytes", peak_rss_bytes()}};
}
