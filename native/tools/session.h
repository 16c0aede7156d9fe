// Owners of the C ABI's handles, and the options that every subcommand shares.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "args.h"
#include "syrinx/syrinx.h"

using Json = nlohmann::ordered_json;

// One line on stdout, at once. Text that is no UTF-8 is mended. Whether it could be written.
bool print_json(const Json & value);

// A failed call: its status and the library's text.
struct CallError : std::runtime_error {
    CallError(syrinx_status s, const std::string & text) : std::runtime_error(text), status(s) {}
    syrinx_status status;
};

// Throws CallError with the last error of `handle`.
void check(syrinx_status status, const void * handle);

struct Engine {
    Engine();
    ~Engine() { syrinx_engine_close(handle); }
    Engine(const Engine &) = delete;
    Engine & operator=(const Engine &) = delete;
    Json devices() const;
    std::string cpu_variant() const;  // as in devices(): "static", or the instruction-set level that computes
    syrinx_engine * handle = nullptr;
};

struct Model {
    Model(const Engine & engine, const Args & args);
    ~Model() { syrinx_model_close(handle); }
    Model(const Model &) = delete;
    Model & operator=(const Model &) = delete;
    Json facts() const;
    std::vector<int32_t> tokenize(const std::string & text) const;
    // messages: "role=content"
    std::vector<int32_t> apply_chat_template(const std::vector<std::string> & messages) const;
    syrinx_model * handle = nullptr;
    double load_ms = 0;
};

// The options of Model and Context, for a subcommand's own list.
extern const std::vector<std::string> session_options;

syrinx_context_params context_params(const Args & args);

struct Context {
    Context(const Model & model, const syrinx_context_params & params);
    ~Context() { syrinx_context_close(handle); }
    Context(const Context &) = delete;
    Context & operator=(const Context &) = delete;
    syrinx_context * handle = nullptr;
};

double now_ms();
uint64_t peak_rss_bytes();
