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

    void want_read() {
        reading_ = true;
        if (read_waits_) return;
        read_waits_ = true;
        socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           [self = shared_from_this()](boost::system::error_code e) {
                               self->read_waits_ = false;
                               if (e || !self->context_ || !self->reading_) return;
                               redisAsyncHandleRead(self->context_);
                               if (self->context_ && self->reading_) self->want_read();
                           });
    }
    void stop_reading() { reading_ = false; }

    void want_write() {
        writing_ = true;
        // Not yet connected, or the socket took only a part: wait until it is writable. Otherwise at the end of this
        // loop turn.
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
        if (write_waits_) return;
        write_waits_ = true;
        socket_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                           [self = shared_from_this()](boost::system::error_code e) {
                               self->write_waits_ = false;
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
    bool reading_ = false, writing_ = false, read_waits_ = false, write_waits_ = false, write_posted_ = false,
         in_write_ = false;
};

std::shared_ptr<adapter>& of(void* data) {
    return *static_cast<std::shared_ptr<adapter>*>(data);
}

}  // namespace

void attach(redisAsyncContext& context, boost::asio::io_context& io) {
    // hiredis keeps one pointer and gives it back to `cleanup`, which ends this share of the adapter.
    context.ev.data = new std::shared_ptr<adapter>(
        std::make_shared<adapter>(context, io));  // NOLINT(cppcoreguidelines-owning-memory)
    context.ev.addRead = [](void* d) { of(d)->want_read(); };
    context.ev.delRead = [](void* d) { of(d)->stop_reading(); };
    context.ev.addWrite = [](void* d) { of(d)->want_write(); };
    context.ev.delWrite = [](void* d) { of(d)->stop_writing(); };
    context.ev.cleanup = [](void* d) {
        of(d)->close();
        delete static_cast<std::shared_ptr<adapter>*>(d);
    };
}

}  // namespace lockcore::redis
