#include "api/handle.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace syrinx {

namespace {

struct Table {
    std::mutex mutex;
    std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects;
    uintptr_t last = 0;
};

// Never destroyed: a thread may still close a handle while the process runs its static destructors.
Table & table() {
    static Table * const instance = new Table;
    return *instance;
}

// Odd multiples keep handles apart from real addresses and small integers.
constexpr uintptr_t kHandleStep = 0x1001;

}  // namespace

syrinx_status Object::enter() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) {
        return SYRINX_ERR_CLOSED;
    }
    if (exclusive_ && !inside_.empty()) {
        error_ = "another call is running on this handle; wait for it or cancel it";
        return SYRINX_ERR_BUSY;
    }
    inside_.push_back(std::this_thread::get_id());
    return SYRINX_OK;
}

void Object::leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    inside_.erase(std::find(inside_.begin(), inside_.end(), std::this_thread::get_id()));
    left_.notify_all();
}

void Object::shut() {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    // Under the lock: a call that has just entered but not yet armed would otherwise forget the cancel.
    cancel();
    const auto self = std::this_thread::get_id();
    left_.wait(lock, [&] {
        return std::all_of(inside_.begin(), inside_.end(), [&](std::thread::id id) { return id == self; });
    });
}

bool Object::closed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return closed_;
}

void Object::set_error(const std::string & text) {
    std::lock_guard<std::mutex> lock(mutex_);
    error_ = text;
}

std::string Object::error() {
    std::lock_guard<std::mutex> lock(mutex_);
    return error_;
}

void * add_handle(std::shared_ptr<Object> object) {
    Table & t = table();
    std::lock_guard<std::mutex> lock(t.mutex);
    t.last += kHandleStep;
    t.objects.emplace(t.last, std::move(object));
    return reinterpret_cast<void *>(t.last);
}

std::shared_ptr<Object> find_handle(const void * handle) {
    Table & t = table();
    std::lock_guard<std::mutex> lock(t.mutex);
    const auto found = t.objects.find(reinterpret_cast<uintptr_t>(handle));
    return found == t.objects.end() ? nullptr : found->second;
}

void close_handle(void * handle, Kind kind) {
    Table & t = table();
    std::shared_ptr<Object> object;
    {
        std::lock_guard<std::mutex> lock(t.mutex);
        const auto found = t.objects.find(reinterpret_cast<uintptr_t>(handle));
        if (found == t.objects.end() || found->second->kind() != kind) {
            return;
        }
        object = std::move(found->second);
        t.objects.erase(found);
    }
    object->shut();
}

}  // namespace syrinx
