// syrinx parity
#include <algorithm>
#include <numeric>

#include "commands.h"
#include "interrupt.h"

namespace {

std::vector<int32_t> parse_tokens(const std::string & list) {
    std::vector<int32_t> tokens;
    size_t begin = 0;
    while (begin <= list.size()) {
        const size_t end = std::min(list.find(',', begin), list.size());
        const std::string part = list.substr(begin, end - begin);
        char * rest = nullptr;
        const long value = std::strtol(part.c_str(), &rest, 10);
        if (part.empty() || *rest != '\0' || value < 0 || value > INT32_MAX) {
            throw UsageError("--tokens: '" + part + "' is no token id");
        }
        tokens.push_back(static_cast<int32_t>(value));
        begin = end + 1;
    }
    return tokens;
}

// Prefills chunk by chunk with every row as output; the probe keeps what is computed.
void prefill_all(const Model & model, const Context & context, const std::vector<int32_t> & tokens, int32_t chunk,
                 bool embeds) {
    const size_t width = static_cast<size_t>(syrinx_context_n_embd(context.handle));
    std::vector<float> rows;
    if (embeds) {
        rows.resize(width * tokens.size());
        check(syrinx_embed_tokens(model.handle, tokens.data(), static_cast<int32_t>(tokens.size()), rows.data()),
              model.handle);
    }
    const int32_t n = static_cast<int32_t>(tokens.size());
    for (int32_t begin = 0; begin < n; begin += chunk) {
        const int32_t count = std::min(chunk, n - begin);
        std::vector<int32_t> wanted(static_cast<size_t>(count));
        std::iota(wanted.begin(), wanted.end(), 0);
        const size_t offset = static_cast<size_t>(begin);
        const syrinx_status status = embeds ? syrinx_prefill_embeds(context.handle, rows.data() + width * offset, count,
                                                                    wanted.data(), count, nullptr, nullptr)
                                            : syrinx_prefill_tokens(context.handle, tokens.data() + offset, count,
                                                                    wanted.data(), count, nullptr, nullptr);
        check(status, context.handle);
    }
}

}  // namespace

Json run_parity(int argc, char ** argv) {
    std::vector<std::string> options = session_options;
    options.insert(options.end(), {"out", "tokens", "prompt", "stages", "input", "chunk"});
    const Args args(argc, argv, options, {});
    if (!args.has("out") || args.has("tokens") == args.has("prompt")) {
        throw UsageError("--out FILE and either --tokens or --prompt are needed");
    }
    CancelOnInterrupt interrupt;
    const Engine engine;
    const Model model(engine, args);
    const std::vector<int32_t> tokens =
        args.has("tokens") ? parse_tokens(args.text("tokens")) : model.tokenize(args.text("prompt"));
    const int32_t n = static_cast<int32_t>(tokens.size());

    syrinx_context_params params = context_params(args);
    params.n_ctx = args.integer("ctx", std::max(n, 1));
    params.n_batch = args.integer("batch", std::max(n, 1));
    params.n_outputs = params.n_batch;
    params.flash_attention = args.integer("flash-attention", 0);
    if (!args.has("kv")) {
        params.type_k = params.type_v = SYRINX_KV_F32;
    }
    const Context context(model, params);
    interrupt.watch(context.handle);
    const std::string stages = args.text("stages", "all");
    const std::string out = args.text("out");
    const int32_t chunk = args.integer("chunk", std::max(n, 1));
    if (chunk < 1) {
        throw UsageError("--chunk must be at least 1");
    }
    check(syrinx_probe_start(context.handle, stages.c_str()), context.handle);
    prefill_all(model, context, tokens, chunk, args.text("input", "tokens") == "embeds");
    check(syrinx_probe_write(context.handle, out.c_str()), context.handle);
    return {{"schema", 1}, {"tokens", tokens}, {"out", out}, {"stages", stages}, {"load_ms", model.load_ms}};
}
