// syrinx_status_name to syrinx_engine_devices.
#include "api/objects.h"

using namespace syrinx;

const char * syrinx_status_name(int32_t status) {
    switch (status) {
        case SYRINX_OK:                   return "SYRINX_OK";
        case SYRINX_ERR_INVALID_ARGUMENT: return "SYRINX_ERR_INVALID_ARGUMENT";
        case SYRINX_ERR_NOT_FOUND:        return "SYRINX_ERR_NOT_FOUND";
        case SYRINX_ERR_IO:               return "SYRINX_ERR_IO";
        case SYRINX_ERR_BAD_MODEL:        return "SYRINX_ERR_BAD_MODEL";
        case SYRINX_ERR_UNSUPPORTED:      return "SYRINX_ERR_UNSUPPORTED";
        case SYRINX_ERR_OUT_OF_MEMORY:    return "SYRINX_ERR_OUT_OF_MEMORY";
        case SYRINX_ERR_CONTEXT_FULL:     return "SYRINX_ERR_CONTEXT_FULL";
        case SYRINX_ERR_CANCELLED:        return "SYRINX_ERR_CANCELLED";
        case SYRINX_ERR_BAD_STATE:        return "SYRINX_ERR_BAD_STATE";
        case SYRINX_ERR_INCOMPATIBLE:     return "SYRINX_ERR_INCOMPATIBLE";
        case SYRINX_ERR_BUSY:             return "SYRINX_ERR_BUSY";
        case SYRINX_ERR_CLOSED:           return "SYRINX_ERR_CLOSED";
        case SYRINX_ERR_ABI:              return "SYRINX_ERR_ABI";
        case SYRINX_ERR_BUFFER_TOO_SMALL: return "SYRINX_ERR_BUFFER_TOO_SMALL";
        case SYRINX_ERR_INTERNAL:         return "SYRINX_ERR_INTERNAL";
    }
    return "unknown status";
}

const char * syrinx_version(void) { return SYRINX_VERSION; }

uint32_t syrinx_abi_version(void) { return SYRINX_ABI_VERSION; }

const char * syrinx_last_error(const void * handle) {
    try {
        thread_local std::string text;
        const std::shared_ptr<Object> object = find_handle(handle);
        text = object ? object->error() : "the handle is closed, or was never one";
        return text.c_str();
    } catch (...) {
        return "out of memory";
    }
}

syrinx_status syrinx_engine_create(uint32_t abi_version, syrinx_log_callback log, void * log_user_data,
                                   syrinx_engine ** engine) {
    if (!engine) {
        return SYRINX_ERR_INVALID_ARGUMENT;
    }
    *engine = nullptr;
    if (abi_version != SYRINX_ABI_VERSION) {
        return SYRINX_ERR_ABI;
    }
    try {
        auto sink = std::make_shared<LogSink>(log, log_user_data);
        *engine = static_cast<syrinx_engine *>(add_handle(std::make_shared<EngineObject>(std::move(sink))));
        return SYRINX_OK;
    } catch (...) {
        return SYRINX_ERR_OUT_OF_MEMORY;
    }
}

void syrinx_engine_close(syrinx_engine * engine) { close_handle(engine, Kind::kEngine); }

syrinx_status syrinx_engine_devices(syrinx_engine * engine, char * json, size_t * size) {
    return call<EngineObject>(engine, [&](EngineObject &) { write_text(devices_json(), json, size); });
}
