// The command line's options: --name value, --flag, repeated ones, positionals. Unknown ones are errors.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Args {
public:
    // options: names that take a value; flags: names that take none.
    Args(int argc, char ** argv, const std::vector<std::string> & options, const std::vector<std::string> & flags);

    const std::string & model() const { return model_; }
    bool has(const std::string & name) const { return values_.count(name) > 0; }
    std::string text(const std::string & name, const std::string & otherwise = "") const;
    std::vector<std::string> all(const std::string & name) const;
    int32_t integer(const std::string & name, int32_t otherwise) const;
    uint64_t unsigned64(const std::string & name, uint64_t otherwise) const;
    float real(const std::string & name, float otherwise) const;

private:
    std::string model_;
    std::map<std::string, std::vector<std::string>> values_;
};
