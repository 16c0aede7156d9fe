// What stands behind the C ABI's handles: a table of live objects, and for each a slot that knows which calls are
// inside it. A handle is a number that was never used before, so that a closed or foreign one is noticed, not read.
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "syrinx/syrinx.h"

namespace syrinx {

enum class Kind { kEngine, kModel, kContext, kSampler };

// Base of the objects behind handles.
class Object {
public:
    // exclusive: one call at a time; else any number.
    Object(Kind kind, bool exclusive) : kind_(kind), exclusive_(exclusive) {}
    virtual ~Object() = default;
    Object(const Object &) = delete;
    Object & operator=(const Object &) = delete;

    Kind kind() const { return kind_; }
    virtual void cancel() {}
    // Before a call's body runs, once it owns the slot.
    virtual void arm() {}

    // OK, BUSY or CLOSED. After OK the caller owes leave().
    syrinx_status enter();
    void leave();
    // No call enters any more; cancels those inside and waits for them. A call that closes its own handle, out of a
    // callback, is not waited for: the object then lives until that call ends.
    void shut();
    bool closed();

    void set_error(const std::string & text);
    std::string error();

private:
    const Kind kind_;
    const bool exclusive_;
    std::mutex mutex_;
    std::condition_variable left_;
    std::vector<std::thread::id> inside_;
    bool closed_ = false;
    std::string error_;
};

// The table. Adding gives the object's handle.
void * add_handle(std::shared_ptr<Object> object);
std::shared_ptr<Object> find_handle(const void * handle);
void close_handle(void * handle, Kind kind);

template <class T>
std::shared_ptr<T> find(const void * handle) {
    std::shared_ptr<Object> object = find_handle(handle);
    return object && object->kind() == T::kKind ? std::static_pointer_cast<T>(object) : nullptr;
}

// Runs body and turns whatever it throws into a status, with the text on `owner`.
template <class F>
syrinx_status guarded(Object & owner, F && body) noexcept {
    try {
        try {
            body();
            return SYRINX_OK;
        } catch (const Error & e) {
            owner.set_error(e.what());
            return e.status();
        } catch (const std::bad_alloc &) {
            owner.set_error("out of memory");
            return SYRINX_ERR_OUT_OF_MEMORY;
        } catch (const std::exception & e) {
            owner.set_error(std::string("internal error: ") + e.what());
            return SYRINX_ERR_INTERNAL;
        } catch (...) {
            owner.set_error("internal error of unknown kind");
            return SYRINX_ERR_INTERNAL;
        }
    } catch (...) {
        return SYRINX_ERR_OUT_OF_MEMORY;  // not even the text could be kept
    }
}

// Owns a slot for the length of a call.
class Entered {
public:
    explicit Entered(Object & object) : object_(object), status_(object.enter()) {}
    ~Entered() {
        if (status_ == SYRINX_OK) {
            object_.leave();
        }
    }
    Entered(const Entered &) = delete;
    Entered & operator=(const Entered &) = delete;
    syrinx_status status() const { return status_; }

private:
    Object & object_;
    const syrinx_status status_;
};

// The shape of nearly every function of the ABI: find the handle, enter it, run body(T &), translate errors.
template <class T, class F>
syrinx_status call(const void * handle, F && body) noexcept {
    try {
        const std::shared_ptr<T> object = find<T>(handle);
        if (!object) {
            return SYRINX_ERR_CLOSED;
        }
        const Entered entered(*object);
        if (entered.status() != SYRINX_OK) {
            return entered.status();
        }
        return guarded(*object, [&] {
            object->arm();
            body(*object);
        });
    } catch (...) {
        return SYRINX_ERR_OUT_OF_MEMORY;
    }
}

}  // namespace syrinx
