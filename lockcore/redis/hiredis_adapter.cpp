#include <redis/hiredis_adapter.hpp>

#include <hiredis/async.h>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include <memory>

namespace lockcore::redis {
namespace {

class adapter : public std::enable_shared_from_this<adapter> {
  public:
    adapter(redisAsyncContext& context, boost::asio::io_context& io)
        : context_(&context), io_(io), socket_(io, context.c.fd) {}

    void start_reading() {
        reading_ = true;
        if (read_pending_) return;
        read_pending_ = true;
        socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](boost::system::error_code e) {
                               self->read_pending_ = false;
                               if (e || !self->context_ || !self->reading_) return;
                               redisAsyncHandleRead(self->context_);
                               if (self->context_ && self->reading_) self->start_reading();
                           });
    }
    void stop_reading() { reading_ = false; }

    void start_writing() {
        writing_ = true;
        // If it is not yet connected, or the socket took only a part, it waits until the socket is writable. Otherwise
        // it writes at the end of this loop turn.
        if (!(context_->c.flags & REDIS_CONNECTED) || in_write_) return wait_writable();
        if (write_posted_) return;
        write_posted_ = true;
        boost::asio::post(io_, [self = shared_from_this()] {
            self->write_posted_ = false;
            self->write();
        });
    }
    void stop_writing() { writing_ = false; }

    void close() {
        context_ = nullptr;
        boost::system::error_code ignored;
        socket_.cancel(ignored);
        socket_.release();  // hiredis closes the descriptor
    }

  private:
    void wait_writable() {
        if (write_pending_) return;
        write_pending_ = true;
        socket_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                           [self = shared_from_this()](boost::system::error_code e) {
                               self->write_pending_ = false;
                               if (!e) self->write();
                           });
    }
    void write() {
        if (!context_ || !writing_) return;
        in_write_ = true;
        redisAsyncHandleWrite(context_);
        in_write_ = false;
    }

    redisAsyncContext* context_;
    boost::asio::io_context& io_;
    boost::asio::posix::stream_descriptor socket_;
    bool reading_ = false, writing_ = false, read_pending_ = false, write_pending_ = false, write_posted_ = false,
         in_write_ = false;
};

std::shared_ptr<adapter>& adapter_of(void* data) {
    return *static_cast<std::shared_ptr<adapter>*>(data);
}

}  // namespace

void attach(redisAsyncContext& context, boost::asio::io_context& io) {
    // hiredis stores this pointer and passes it to `cleanup`, which deletes it.
    context.ev.data = new std::shared_ptr<adapter>(
        std::make_shared<adapter>(context, io));  // NOLINT(cppcoreguidelines-owning-memory)
    context.ev.addRead = [](void* d) { adapter_of(d)->start_reading(); };
    context.ev.delRead = [](void* d) { adapter_of(d)->stop_reading(); };
    context.ev.addWrite = [](void* d) { adapter_of(d)->start_writing(); };
    context.ev.delWrite = [](void* d) { adapter_of(d)->stop_writing(); };
    context.ev.cleanup = [](void* d) {
        adapter_of(d)->close();
        delete static_cast<std::shared_ptr<adapter>*>(d);
    };
}

}  // namespace lockcore::redis
