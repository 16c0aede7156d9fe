// syrinx info, syrinx check
#include "commands.h"

Json run_info(int argc, char ** argv) {
    const Args args(argc, argv, session_options, {});
    const Engine engine;
    const Model model(engine, args);
    Json out = {{"schema", 1}};
    out.update(model.facts());
    out["load_ms"] = model.load_ms;
    out["cpu_variant"] = engine.cpu_variant();
    out["devices"] = engine.devices();
    out["version"] = syrinx_version();
    return out;
}

Json run_check(int argc, char ** argv) {
    const Args args(argc, argv, {}, {});
    const Engine engine;
    check(syrinx_model_check(engine.handle, args.model().c_str()), engine.handle);
    return {{"schema", 1}, {"ok", true}};
}
