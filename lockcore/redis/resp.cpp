#include <redis/resp.hpp>

#include <hiredis/read.h>

#include <new>

namespace lockcore::redis {

/// The functions by which hiredis makes a reply. They return a pointer to the part that they made.
struct reply_reader::builder {
    /// Returns the place of the next part: current_, or an element of an array within it.
    static reply& place(const redisReadTask* task) {
        if (task->parent) return static_cast<reply*>(task->parent->obj)->elements[static_cast<std::size_t>(task->idx)];
        auto& self = *static_cast<reply_reader*>(task->privdata);
        self.elements_ = 0;
        return self.current_;
    }
    static reply& clear(const redisReadTask* task, reply::kind type) {
        reply& part = place(task);
        part.type = type;
        part.text.clear();
        part.number = 0;
        part.elements.clear();
        return part;
    }
    static void* make_text(const redisReadTask* task, char* text, std::size_t size) {
        reply& part = clear(task, task->type == REDIS_REPLY_ERROR ? reply::kind::error : reply::kind::text);
        part.text.assign(text, size);
        return &part;
    }
    /// `Count` is int in hiredis 0.14 and size_t since 1.0. Out: null if the reply has too many elements.
    template <typename Count>
    static void* make_array(const redisReadTask* task, Count count) {
        reply& part = clear(task, reply::kind::array);
        auto& self = *static_cast<reply_reader*>(task->privdata);
        self.elements_ += static_cast<std::size_t>(count);
        if (self.elements_ > elements_max || static_cast<std::size_t>(count) > elements_max) return nullptr;
        part.elements.resize(static_cast<std::size_t>(count));
        return &part;
    }
    static void* make_number(const redisReadTask* task, long long number) {
        reply& part = clear(task, reply::kind::number);
        part.number = number;
        return &part;
    }
    static void* make_nil(const redisReadTask* task) { return &clear(task, reply::kind::nil); }

    /// Version 1.0 of hiredis has types of RESP3, which nobody asks a server for: they are errors.
    template <typename Functions>
    static void refuse_resp3(Functions& f) {
        if constexpr (requires { f.createBool; }) {
            f.createBool = [](const redisReadTask*, auto) -> void* { return nullptr; };
            f.createDouble = [](const redisReadTask*, auto, auto, auto) -> void* { return nullptr; };
        }
    }

    static redisReplyObjectFunctions* functions() {
        static redisReplyObjectFunctions all = [] {
            redisReplyObjectFunctions f{};
            f.createString = &make_text;
            f.createArray = &make_array;
            f.createInteger = &make_number;
            f.createNil = &make_nil;
            f.freeObject = [](void*) {};  // reply_reader owns the parts
            refuse_resp3(f);
            return f;
        }();
        return &all;
    }
};

reply_reader::reply_reader() : reader_(redisReaderCreateWithFunctions(builder::functions()), &redisReaderFree) {
    if (!reader_) throw std::bad_alloc();
    reader_->privdata = this;
}

reply_reader::~reply_reader() = default;

/// The length of a text that is incomplete is a line before it, so the texts themselves have no such limit.
bool reply_reader::has_too_long_line() const {
    const std::string_view unread(reader_->buf + reader_->pos, reader_->len - reader_->pos);
    return unread.size() > line_bytes_max && unread.substr(0, line_bytes_max).find("\r\n") == std::string_view::npos;
}

void reply_reader::add(std::string_view bytes) {
    if (!error_.empty()) return;
    bytes_ += bytes.size();
    if (redisReaderFeed(reader_.get(), bytes.data(), bytes.size()) != REDIS_OK) error_ = reader_->errstr;
}

const reply* reply_reader::next() {
    if (!error_.empty()) return nullptr;
    void* complete = nullptr;
    if (redisReaderGetReply(reader_.get(), &complete) != REDIS_OK) {
        error_ = elements_ > elements_max ? "the node sent a reply of too many elements" : reader_->errstr;
        return nullptr;
    }
    if (complete) {
        bytes_ = 0;
        return &current_;
    }
    if (bytes_ > bytes_max || has_too_long_line()) error_ = "the node sent a reply that is too long";
    return nullptr;
}

}  // namespace lockcore::redis
