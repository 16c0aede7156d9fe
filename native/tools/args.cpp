#include "args.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

static bool contains(const std::vector<std::string> & list, const std::string & name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

Args::Args(int argc, char ** argv, const std::vector<std::string> & options, const std::vector<std::string> & flags) {
    for (int i = 0; i < argc; ++i) {
        const std::string arg = argv[i];
        if (arg.rfind("--", 0) != 0) {
            if (!model_.empty()) {
                throw UsageError("unexpected argument '" + arg + "'");
            }
            model_ = arg;
            continue;
        }
        const size_t equals = arg.find('=');
        const std::string name = arg.substr(2, equals == std::string::npos ? equals : equals - 2);
        if (contains(flags, name) && equals == std::string::npos) {
            values_[name].push_back("1");
        } else if (contains(options, name) && equals != std::string::npos) {
            values_[name].push_back(arg.substr(equals + 1));
        } else if (contains(options, name) && i + 1 < argc) {
            values_[name].push_back(argv[++i]);
        } else {
            throw UsageError(contains(options, name) ? "--" + name + " needs a value" : "unknown option '" + arg + "'");
        }
    }
    if (model_.empty()) {
        throw UsageError("no MODEL was given");
    }
}

std::string Args::text(const std::string & name, const std::string & otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second.back();
}

std::vector<std::string> Args::all(const std::string & name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::vector<std::string>() : found->second;
}

// Runs a strto* function over a whole option value.
template <class F>
static auto number(const std::string & name, const std::string & value, F && parse) {
    char * end = nullptr;
    errno = 0;
    const auto result = parse(value.c_str(), &end);
    if (value.empty() || *end != '\0' || errno != 0) {
        throw UsageError("--" + name + ": '" + value + "' is no number that fits");
    }
    return result;
}

int32_t Args::integer(const std::string & name, int32_t otherwise) const {
    if (!has(name)) {
        return otherwise;
    }
    const long long value = number(name, text(name), [](const char * s, char ** end) { return strtoll(s, end, 10); });
    if (value < INT32_MIN || value > INT32_MAX) {
        throw UsageError("--" + name + ": '" + text(name) + "' is no number that fits");
    }
    return static_cast<int32_t>(value);
}

uint64_t Args::unsigned64(const std::string & name, uint64_t otherwise) const {
    if (text(name).find('-') != std::string::npos) {  // strtoull would take it, and wrap
        throw UsageError("--" + name + ": '" + text(name) + "' is negative");
    }
    return has(name) ? number(name, text(name), [](const char * s, char ** end) { return strtoull(s, end, 10); })
                     : otherwise;
}

float Args::real(const std::string & name, float otherwise) const {
    return has(name) ? number(name, text(name), [](const char * s, char ** end) { return strtof(s, end); }) : otherwise;
}
