// syrinx: the engine on a command line, the same on the host and on a device. JSON goes to stdout, one object a line and
// the result or error last; everything meant for a person goes to stderr. Exit code: 0, 2 for usage, 10 + syrinx_status for a failed call.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "commands.h"
#include "interrupt.h"

static const char usage[] =
    "usage: syrinx info|check MODEL\n"
    "       syrinx run    MODEL (--prompt TEXT [--raw] | --message ROLE=TEXT ...) [--max-tokens N] [--stop TEXT]...\n"
    "                     [--temperature F] [--top-k N] [--top-p F] [--repetition-penalty F] [--penalty-window N]\n"
    "                     [--seed N] [--dual] [--stream]\n"
    "       syrinx bench  MODEL [--prompt-tokens N] [--gen-tokens N] [--repeats N] [--warmup N]\n"
    "                     [--input tokens|embeds] [--dual]\n"
    "       syrinx parity MODEL --out DUMP.gguf (--tokens 1,2,3 | --prompt TEXT) [--stages LIST]\n"
    "                     [--input tokens|embeds] [--chunk N]\n"
    "all:   [--device NAME] [--gpu-layers N] [--threads N] [--threads-batch N] [--poll 0..100] [--ctx N] [--batch N]\n"
    "       [--kv f16|f32|bf16|q8_0|q4_0] [--flash-attention 0|1] [--mmap 0|1] [--repack 0|1] [--verbosity 0..3]\n"
    "exit code: 0; 2 for a wrong option; 10 + syrinx_status for a failed call\n"
    "example: syrinx run SmolLM2.gguf --prompt 'What is the capital of France?' --max-tokens 32 --stream\n";

static int print_error(const char * status, const char * text, int code) {
    print_json({{"schema", 1}, {"error", {{"status", status}, {"text", text}}}});
    std::fprintf(stderr, "syrinx: %s\n", text);
    return code;
}

int main(int argc, char ** argv) {
    end_with_parent();
    struct Command {
        const char * name;
        Json (*run)(int, char **);
    };
    static const Command commands[] = {
        {"info", run_info}, {"check", run_check}, {"run", run_run}, {"bench", run_bench}, {"parity", run_parity}};
    for (int i = 1; i < std::min(argc, 3); ++i) {  // alone, or behind a command
        if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
            std::fputs(usage, stdout);
            return 0;
        }
    }
    if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
        std::printf("%s\n", syrinx_version());
        return 0;
    }
    try {
        for (const Command & command : commands) {
            if (argc > 1 && std::strcmp(argv[1], command.name) == 0) {
                return print_json(command.run(argc - 2, argv + 2)) ? 0 : 1;
            }
        }
        throw UsageError(argc > 1 ? std::string("unknown command '") + argv[1] + "'" : "no command was given");
    } catch (const UsageError & e) {
        std::fputs(usage, stderr);
        return print_error("SYRINX_ERR_INVALID_ARGUMENT", e.what(), 2);
    } catch (const CallError & e) {
        return print_error(syrinx_status_name(e.status), e.what(), 10 + static_cast<int>(e.status));
    } catch (const std::exception & e) {
        return print_error("SYRINX_ERR_INTERNAL", e.what(), 10 + SYRINX_ERR_INTERNAL);
    }
}
