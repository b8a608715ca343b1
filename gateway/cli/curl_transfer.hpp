#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <curl/curl.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>

namespace fencegate::cli {

/// Runs one HTTP transfer of libcurl on an io_context, which waits for the sockets and the timer that libcurl names.
/// libcurl resolves host names on a thread of its own, so that a silent name server does not block the io_context.
///
/// Threads: not thread-safe; all calls and handlers run on the thread of the io_context.
class curl_transfer : public std::enable_shared_from_this<curl_transfer> {
  public:
    /// Throws std::runtime_error.
    static std::shared_ptr<curl_transfer> create(boost::asio::io_context& io);
    /// Only for create.
    explicit curl_transfer(boost::asio::io_context& io);
    ~curl_transfer();
    curl_transfer(const curl_transfer&) = delete;
    curl_transfer& operator=(const curl_transfer&) = delete;

    /// Sets an option before the start. Throws std::runtime_error where libcurl refuses it.
    template <typename Value>
    void set(CURLoption option, Value value) {
        require(curl_easy_setopt(easy_, option, value));
    }

    void start();

    /// Aborts the transfer and closes its connection. No handler runs afterwards.
    void close();

    bool has_ended() const { return ended_; }
    /// Only after has_ended().
    CURLcode result() const { return result_; }
    /// Returns why the transfer failed, as libcurl and OpenSSL say it.
    std::string error_text() const;

    unsigned status() const;
    /// Returns the response header Content-Type; may be empty.
    std::string content_type() const;
    /// Whether the address of the host, or of the proxy, is known.
    bool is_name_resolved() const;

    /// Resumes wait().
    void notify() { changed_.cancel(); }
    /// Waits until notify() is called or the transfer ends.
    ///
    /// Out: false when `deadline` came first.
    boost::asio::awaitable<bool> wait(std::chrono::steady_clock::time_point deadline);

    /// Continues after a callback has paused the transfer. May call callbacks.
    void resume();

  private:
    struct watched_socket;

    static curl_socket_t open_socket(void* self, curlsocktype purpose, curl_sockaddr* address);
    static int on_socket(CURL* easy, curl_socket_t socket, int events, void* self, void* data);
    static int on_timer(CURLM* multi, long timeout_ms, void* self);

    void require(CURLcode code) const;
    void watch(curl_socket_t socket, int events);
    void arm(const std::shared_ptr<watched_socket>& watched);
    void perform(curl_socket_t socket, int events);

    boost::asio::io_context& io_;
    boost::asio::steady_timer timer_, changed_;
    std::map<curl_socket_t, std::shared_ptr<watched_socket>> watched_;
    CURLM* multi_ = nullptr;
    CURL* easy_ = nullptr;
    char error_[CURL_ERROR_SIZE] = {};
    CURLcode result_ = CURLE_OK;
    bool ended_ = false;
};

}  // namespace fencegate::cli
