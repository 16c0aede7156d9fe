#include "backbone/cpu_variant.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backbone/runtime.h"
#include "core/error.h"
#include "ggml-backend.h"
#include "syrinx-base/cpu_levels.h"

#define SYRINX_DECLARE_LEVEL(name, score) extern "C" int score(void);
SYRINX_CPU_LEVELS(SYRINX_DECLARE_LEVEL)

namespace syrinx {

namespace {

// score: ggml's, compiled for the base instruction set; 0 if this processor lacks something, and the more the better.
struct Level {
    std::string name;
    int (*score)();
};

#define SYRINX_LEVEL(name, score) {name, score},

std::vector<Level> known_levels() { return {SYRINX_CPU_LEVELS(SYRINX_LEVEL)}; }

std::string loaded_variant;

std::string names_of(const std::vector<Level> & levels) {
    std::string text;
    for (const Level & level : levels) {
        text += (text.empty() ? "" : ", ") + level.name;
    }
    return text;
}

// The module beside this library; by its bare name where that is no file, as inside an APK: the linker knows the place.
std::string module_path(const std::string & level) {
    const std::string file = "libggml-cpu-" + level + ".so";
    Dl_info self;
    if (dladdr(reinterpret_cast<void *>(&known_levels), &self) && self.dli_fname) {
        const std::string library = self.dli_fname;
        const size_t slash = library.rfind('/');
        const std::string path = slash == std::string::npos ? file : library.substr(0, slash + 1) + file;
        if (access(path.c_str(), R_OK) == 0) {
            return path;
        }
    }
    return file;
}

// The levels to try, best first; only the one that the environment names, if it does.
std::vector<Level> candidates() {
    const std::vector<Level> known = known_levels();
    std::vector<Level> fitting;
    std::copy_if(known.begin(), known.end(), std::back_inserter(fitting),
                 [](const Level & l) { return l.score() > 0; });
    std::sort(fitting.begin(), fitting.end(), [](const Level & a, const Level & b) { return a.score() > b.score(); });
    if (fitting.empty()) {
        fail(SYRINX_ERR_UNSUPPORTED, "this processor runs none of the engine's CPU variants (%s)",
             names_of(known).c_str());
    }
    const char * named = std::getenv("SYRINX_CPU_VARIANT");
    if (!named || !named[0]) {
        return fitting;
    }
    const auto is_named = [named](const Level & level) { return level.name == named; };
    if (std::none_of(known.begin(), known.end(), is_named)) {
        fail(SYRINX_ERR_UNSUPPORTED, "SYRINX_CPU_VARIANT names '%s', which this engine does not have: it has %s", named,
             names_of(known).c_str());
    }
    const auto found = std::find_if(fitting.begin(), fitting.end(), is_named);
    if (found == fitting.end()) {
        fail(SYRINX_ERR_UNSUPPORTED, "SYRINX_CPU_VARIANT names '%s', which this processor cannot run: it can run %s",
             named, names_of(fitting).c_str());
    }
    return {*found};
}

void use_static_variant() {
    const char * named = std::getenv("SYRINX_CPU_VARIANT");
    if (named && named[0] && std::string(named) != "static") {
        fail(SYRINX_ERR_UNSUPPORTED, "SYRINX_CPU_VARIANT names '%s', but this engine has one CPU variant, 'static'",
             named);
    }
    loaded_variant = "static";
}

}  // namespace

void load_cpu_variant() {
    if (known_levels().empty()) {
        return use_static_variant();
    }
    ErrorCapture errors;
    const std::vector<Level> levels = candidates();
    for (const Level & level : levels) {
        if (ggml_backend_load(module_path(level.name).c_str())) {
            loaded_variant = level.name;
            return;
        }
    }
    fail(SYRINX_ERR_UNSUPPORTED, "none of the CPU modules for this processor (%s) could be loaded: %s",
         names_of(levels).c_str(), errors.text("no reason was logged").c_str());
}

const std::string & cpu_variant() { return loaded_variant; }

}  // namespace syrinx
