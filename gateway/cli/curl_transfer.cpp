#include <gateway/cli/curl_transfer.hpp>
#include <gateway/runtime/transfer_error.hpp>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

namespace fencegate::cli {

namespace asio = boost::asio;
using asio::posix::stream_descriptor;
using boost::system::error_code;

/// A socket that libcurl waits for; libcurl owns and closes it.
struct curl_transfer::watched_socket {
    watched_socket(asio::io_context& io, curl_socket_t socket) : descriptor(io, socket) {}
    ~watched_socket() { release(); }
    watched_socket(const watched_socket&) = delete;
    watched_socket& operator=(const watched_socket&) = delete;

    void release() {
        if (descriptor.is_open()) descriptor.release();
    }

    stream_descriptor descriptor;
    int events = CURL_POLL_NONE;
    bool awaits_input = false, awaits_output = false;
};

std::shared_ptr<curl_transfer> curl_transfer::create(asio::io_context& io) {
    return std::make_shared<curl_transfer>(io);
}

curl_transfer::curl_transfer(asio::io_context& io) : io_(io), timer_(io), changed_(io) {
    static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
    if (initialised != CURLE_OK) throw std::runtime_error("libcurl can't be initialised");
    multi_ = curl_multi_init();
    easy_ = curl_easy_init();
    if (multi_ == nullptr || easy_ == nullptr) {
        close();
        throw std::runtime_error("libcurl can't start a transfer");
    }
    curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &on_socket);
    curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
    curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &on_timer);
    curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
    set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
    set(CURLOPT_ERRORBUFFER, error_);
    // Otherwise close() waits for the thread that resolves a name, for as long as the name server takes.
    set(CURLOPT_QUICK_EXIT, 1L);
}

curl_transfer::~curl_transfer() {
    close();
}

void curl_transfer::close() {
    if (multi_ != nullptr) {
        curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, nullptr);
        curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, nullptr);
    }
    // The descriptors must be released before libcurl closes the sockets that they have registered.
    for (const auto& [socket, watched] : watched_)
        watched->release();
    watched_.clear();
    if (multi_ != nullptr && easy_ != nullptr) curl_multi_remove_handle(multi_, easy_);
    curl_easy_cleanup(easy_);
    curl_multi_cleanup(multi_);
    multi_ = nullptr;
    easy_ = nullptr;
}

void curl_transfer::require(CURLcode code) const {
    if (code != CURLE_OK) throw std::runtime_error(std::string("libcurl: ") + curl_easy_strerror(code));
}

void curl_transfer::start() {
    if (curl_multi_add_handle(multi_, easy_) != CURLM_OK) throw std::runtime_error("libcurl can't start a transfer");
}

std::string curl_transfer::error_text() const {
    return runtime::hide_proxy(error_[0] != '\0' ? error_ : curl_easy_strerror(result_));
}

unsigned curl_transfer::status() const {
    long status = 0;
    curl_easy_getinfo(easy_, CURLINFO_RESPONSE_CODE, &status);
    return static_cast<unsigned>(status);
}

std::string curl_transfer::content_type() const {
    const char* type = nullptr;
    curl_easy_getinfo(easy_, CURLINFO_CONTENT_TYPE, &type);
    return type == nullptr ? "" : type;
}

bool curl_transfer::is_name_resolved() const {
    curl_off_t microseconds = 0;
    curl_easy_getinfo(easy_, CURLINFO_NAMELOOKUP_TIME_T, &microseconds);
    return microseconds > 0;
}

asio::awaitable<bool> curl_transfer::wait(std::chrono::steady_clock::time_point deadline) {
    error_code ec;
    changed_.expires_at(deadline);
    co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    co_return ec == asio::error::operation_aborted;
}

void curl_transfer::resume() {
    curl_easy_pause(easy_, CURLPAUSE_CONT);
}

curl_socket_t curl_transfer::open_socket(void*, curlsocktype, curl_sockaddr* address) {
    // A program that inherited the connection of a call that waits would keep its place in the queue.
    const int opened = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return opened < 0 ? CURL_SOCKET_BAD : opened;
}

int curl_transfer::on_socket(CURL*, curl_socket_t socket, int events, void* self, void*) {
    static_cast<curl_transfer*>(self)->watch(socket, events);
    return 0;
}

int curl_transfer::on_timer(CURLM*, long timeout_ms, void* self) {
    auto& transfer = *static_cast<curl_transfer*>(self);
    if (timeout_ms < 0) {
        transfer.timer_.cancel();
        return 0;
    }
    transfer.timer_.expires_after(std::chrono::milliseconds(timeout_ms));
    transfer.timer_.async_wait([weak = transfer.weak_from_this()](const error_code& ec) {
        if (ec) return;
        if (const auto locked = weak.lock()) locked->perform(CURL_SOCKET_TIMEOUT, 0);
    });
    return 0;
}

void curl_transfer::watch(curl_socket_t socket, int events) {
    if (events == CURL_POLL_REMOVE) {
        const auto found = watched_.find(socket);
        if (found == watched_.end()) return;
        found->second->release();
        watched_.erase(found);
        return;
    }
    auto& watched = watched_[socket];
    if (!watched) watched = std::make_shared<watched_socket>(io_, socket);
    watched->events = events;
    arm(watched);
}

void curl_transfer::arm(const std::shared_ptr<watched_socket>& watched) {
    const auto await_event = [&](stream_descriptor::wait_type kind, bool watched_socket::*awaits, int event) {
        if (std::exchange(*watched.*awaits, true)) return;
        watched->descriptor.async_wait(kind, [weak = weak_from_this(), watched, awaits, event](const error_code& ec) {
            *watched.*awaits = false;
            const auto self = weak.lock();
            if (!self || !watched->descriptor.is_open()) return;
            self->perform(watched->descriptor.native_handle(), ec ? CURL_CSELECT_ERR : event);
            if (watched->descriptor.is_open()) self->arm(watched);
        });
    };
    if ((watched->events & CURL_POLL_IN) != 0)
        await_event(stream_descriptor::wait_read, &watched_socket::awaits_input, CURL_CSELECT_IN);
    if ((watched->events & CURL_POLL_OUT) != 0)
        await_event(stream_descriptor::wait_write, &watched_socket::awaits_output, CURL_CSELECT_OUT);
}

void curl_transfer::perform(curl_socket_t socket, int events) {
    if (multi_ == nullptr) return;
    int running = 0;
    curl_multi_socket_action(multi_, socket, events, &running);
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
        if (message->msg != CURLMSG_DONE) continue;
        ended_ = true;
        result_ = message->data.result;
        notify();
    }
}

}  // namespace fencegate::cli
