// syrinx run
#include <algorithm>
#include <cstdio>

#include "commands.h"
#include "interrupt.h"

namespace {

struct Sampler {
    Sampler(const Engine & engine, const Args & args) {
        syrinx_sampler_params p;
        syrinx_sampler_default_params(&p);
        p.temperature = args.real("temperature", p.temperature);
        p.top_k = args.integer("top-k", p.top_k);
        p.top_p = args.real("top-p", p.top_p);
        p.repetition_penalty = args.real("repetition-penalty", p.repetition_penalty);
        p.penalty_window = args.integer("penalty-window", p.penalty_window);
        p.seed = args.unsigned64("seed", p.seed);
        check(syrinx_sampler_create(engine.handle, &p, &handle), engine.handle);
    }
    ~Sampler() { syrinx_sampler_close(handle); }
    Sampler(const Sampler &) = delete;
    Sampler & operator=(const Sampler &) = delete;
    syrinx_sampler * handle = nullptr;
};

struct Collected {
    std::string text;
    bool stream;
};

int32_t on_text(const char * text, size_t bytes, void * user_data) {
    auto * collected = static_cast<Collected *>(user_data);
    collected->text.append(text, bytes);
    if (collected->stream) {
        print_json({{"piece", std::string(text, bytes)}});
    }
    return 0;
}

std::vector<int32_t> prompt_tokens(const Model & model, const Args & args) {
    if (args.has("prompt") == args.has("message")) {
        throw UsageError("give either --prompt TEXT or one or more --message ROLE=TEXT");
    }
    if (args.has("message")) {
        return model.apply_chat_template(args.all("message"));
    }
    return args.has("raw") ? model.tokenize(args.text("prompt"))
                           : model.apply_chat_template({"user=" + args.text("prompt")});
}

}  // namespace

Json run_run(int argc, char ** argv) {
    std::vector<std::string> options = session_options;
    options.insert(options.end(), {"prompt", "message", "max-tokens", "temperature", "top-k", "top-p",
                                   "repetition-penalty", "penalty-window", "seed", "stop"});
    const Args args(argc, argv, options, {"raw", "dual", "stream"});
    CancelOnInterrupt interrupt;
    const Engine engine;
    const Sampler sampler(engine, args);
    const Model model(engine, args);
    const std::vector<int32_t> tokens = prompt_tokens(model, args);
    const int32_t max_tokens = args.integer("max-tokens", 256);
    syrinx_context_params context = context_params(args);
    if (!args.has("ctx") && max_tokens > 0) {
        // What this run can fill, and no more than the model was trained for: past that it talks nonsense.
        const int64_t n_ctx_train = model.facts()["n_ctx_train"];
        const int64_t needed = static_cast<int64_t>(tokens.size()) + max_tokens;
        context.n_ctx = static_cast<int32_t>(std::min(needed, std::max<int64_t>(n_ctx_train, 1)));
    }
    const Context decode(model, context);
    const std::unique_ptr<Context> prefill(args.has("dual") ? new Context(model, context) : nullptr);
    interrupt.watch(decode.handle);

    Collected collected = {"", args.has("stream")};
    const std::vector<std::string> stops = args.all("stop");
    std::vector<const char *> stop_pointers;
    for (const std::string & stop : stops) {
        stop_pointers.push_back(stop.c_str());
    }
    syrinx_generate_params params;
    syrinx_generate_default_params(&params);
    params.max_tokens = max_tokens;
    params.stop = stop_pointers.data();
    params.n_stop = static_cast<int32_t>(stop_pointers.size());
    params.on_text = on_text;
    params.user_data = &collected;
    syrinx_generate_result result = {};
    result.struct_size = sizeof result;
    std::vector<int32_t> generated(static_cast<size_t>(std::max(1, params.max_tokens)));
    check(syrinx_generate(prefill ? prefill->handle : decode.handle, decode.handle, sampler.handle, tokens.data(),
                          static_cast<int32_t>(tokens.size()), &params, generated.data(), &result),
          decode.handle);
    generated.resize(static_cast<size_t>(result.n_generated));
    static const char * const finishes[] = {"eos", "stop", "length", "context"};
    return {{"schema", 1},
            {"text", collected.text},
            {"tokens", generated},
            {"finish", finishes[result.finish]},
            {"n_prompt", result.n_prompt},
            {"n_generated", result.n_generated},
            {"load_ms", model.load_ms},
            {"prefill_ms", result.prefill_ms},
            {"handover_ms", result.handover_ms},
            {"handover_bytes", result.handover_bytes},
            {"decode_ms", result.decode_ms},
            {"peak_rss_bytes", peak_rss_bytes()}};
}
