#include <redis/connection.hpp>

#include <redis/node_requests.hpp>
#include <redis/resp.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>

namespace lockcore::redis {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using tls_stream = asio::ssl::stream<tcp::socket&>;

/// Reads the files of `files`. Errors: boost::system::system_error.
asio::ssl::context make_tls_context(const node_tls& files) {
    asio::ssl::context out(asio::ssl::context::tls_client);
    SSL_CTX_set_min_proto_version(out.native_handle(), TLS1_2_VERSION);
    if (files.ca_file.empty()) {
        out.set_default_verify_paths();
    } else {
        out.load_verify_file(files.ca_file);
    }
    if (!files.certificate_file.empty()) {
        out.use_certificate_chain_file(files.certificate_file);
        out.use_private_key_file(files.key_file, asio::ssl::context::pem);
    }
    return out;
}

constexpr std::size_t password_max_bytes = 4096;

std::optional<std::string> read_password(const std::string& file, std::string& fault) {
    const auto failed = [&](const std::string& why) {
        fault = "cannot read " + file + ": " + why;
        return std::nullopt;
    };
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return failed(std::strerror(errno));
    struct stat found {};
    const bool is_regular = ::fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);
    // Not by a stream, whose buffer would keep the secret.
    std::string text(password_max_bytes + 1, '\0');
    const ssize_t length = is_regular ? ::read(descriptor, text.data(), text.size()) : 0;
    const int error = errno;
    ::close(descriptor);
    if (!is_regular) return failed("it is not a regular file");
    if (length < 0) return failed(std::strerror(error));
    text.resize(static_cast<std::size_t>(length));
    if (text.size() > password_max_bytes) return failed("it is longer than 4096 bytes");
    while (text.ends_with('\n') || text.ends_with('\r'))
        text.pop_back();
    if (text.empty()) return failed("it is empty");
    return text;
}

/// Returns the command that authenticates a connection, with the password that password_file has at this moment.
///
/// Out:    empty if the node has no password; also if the file can't be read: `fault` then says why.
/// Limits: 4096 bytes of the file, without the line ends at its end. It has to be a regular file, so that it is read
///         without waiting.
std::optional<std::string> format_auth(const node_address& address, std::string& fault) {
    std::optional<std::string> password = address.password;
    if (!address.password_file.empty()) password = read_password(address.password_file, fault);
    if (!password || password->empty()) return std::nullopt;
    resp_command auth;
    auth.arg("AUTH");
    if (!address.username.empty()) auth.arg(address.username);
    return auth.arg(*password).finish();
}

}  // namespace

/// One TCP connection, with or without TLS.
///
/// Lifetime: shared by its connection and by the handlers that Asio has still to call. It uses nothing of the
///           connection after close().
class connection::link : public std::enable_shared_from_this<link> {
  public:
    explicit link(connection& owner) : owner_(&owner), socket_(owner.io_) {}

    void open(const tcp::endpoint& endpoint) {
        socket_.async_connect(endpoint, [self = shared_from_this()](error_code e) {
            if (!self->owner_) return;
            if (e) return self->fail_to_connect(e.message());
            error_code ignored;
            self->socket_.set_option(tcp::no_delay(true), ignored);
            if (!self->owner_->address_.tls) return self->begin();
            self->shake_hands(*self->owner_->address_.tls);
        });
    }

    /// Closes the socket and calls the handlers of the commands in flight with null.
    void close() {
        owner_ = nullptr;
        error_code ignored;
        socket_.close(ignored);
        if (!is_answering_) fail_commands();
    }

    void send(std::string_view command, reply_handler on_reply) {
        in_flight_.push_back(std::move(on_reply));
        enqueue(command);
    }
    void subscribe(std::string_view channel) {
        is_subscribed_ = true;
        enqueue(resp_command().arg("SUBSCRIBE").arg(channel).finish());
    }
    void ping() {
        if (is_subscribed_) enqueue(resp_command().arg("PING").finish());
    }

  private:
    /// Sends the command at the end of this loop turn.
    void enqueue(std::string_view command) {
        unsent_ += command;
        if (!is_connected_ || is_writing_ || write_posted_) return;
        write_posted_ = true;
        asio::post(owner_->io_, [self = shared_from_this()] {
            self->write_posted_ = false;
            if (self->owner_) self->write();
        });
    }

    void shake_hands(const node_tls& files) {
        try {
            // The stream keeps what it needs of the context.
            asio::ssl::context context = make_tls_context(files);
            tls_.emplace(socket_, context);
            const std::string& host = owner_->address_.host;
            tls_->set_verify_mode(asio::ssl::verify_peer);
            SSL* const ssl = tls_->native_handle();
            error_code not_an_address;
            asio::ip::make_address(host, not_an_address);
            const bool is_name = not_an_address.failed();
            const bool is_expected = is_name ? SSL_set1_host(ssl, host.c_str()) == 1
                                             : X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
            if (!is_expected) return fail_to_connect("TLS: the host can't be compared with a certificate");
            SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
            // RFC 6066, 3: an address is not sent as a server name.
            if (is_name) SSL_set_tlsext_host_name(ssl, host.c_str());
        } catch (const boost::system::system_error& e) {
            return fail_to_connect(std::string("TLS: ") + e.what());
        }
        tls_->async_handshake(asio::ssl::stream_base::client, [self = shared_from_this()](error_code e) {
            if (!self->owner_) return;
            if (e) {
                const long verified = SSL_get_verify_result(self->tls_->native_handle());
                const char* const why = verified == X509_V_OK ? nullptr : X509_verify_cert_error_string(verified);
                return self->fail_to_connect("TLS: " + e.message() + (why ? std::string(": ") + why : ""));
            }
            self->begin();
        });
    }

    void fail_to_connect(const std::string& reason) {
        connection& owner = *owner_;
        close();
        owner.link_ = nullptr;
        owner.try_next_address(reason);
    }

    void begin() {
        is_connected_ = true;
        read();
        std::string fault;
        const std::optional<std::string> auth = format_auth(owner_->address_, fault);
        if (!fault.empty()) return fail({.reason = "its password can't be read: " + fault, .refused = true});
        if (!auth) return owner_->handlers_.connected();
        // Redis closes a connection that sends something long before its credentials were accepted.
        send(*auth, [this](const reply* answer) {
            if (!answer) return;
            if (answer->is_error())
                return fail({.reason = "refuses the credentials: " + answer->text, .refused = true});
            owner_->handlers_.connected();
        });
    }

    void fail(loss what) {
        connection& owner = *owner_;
        close();
        owner.link_ = nullptr;
        owner.report_lost(std::move(what));
    }

    void fail_commands() {
        for (const reply_handler& on_reply : std::exchange(in_flight_, {}))
            on_reply(nullptr);
    }

    void read() {
        const auto on_read = [self = shared_from_this()](error_code e, std::size_t size) {
            if (!self->owner_) return;
            if (e) return self->fail({e == asio::error::eof ? "the node closed the connection" : e.message()});
            self->owner_->candidates_.clear();  // this address answers: the next attempt resolves the name anew
            self->reader_.add({self->received_.data(), size});
            self->answer_commands();
            if (self->owner_) self->read();
        };
        if (tls_) {
            tls_->async_read_some(asio::buffer(received_), on_read);
        } else {
            socket_.async_read_some(asio::buffer(received_), on_read);
        }
    }

    /// Calls the handlers of the replies that are complete. A handler may close this link.
    void answer_commands() {
        is_answering_ = true;
        while (const reply* next = owner_ ? reader_.next() : nullptr) {
            if (in_flight_.empty()) {
                if (is_subscribed_) {
                    owner_->handlers_.message(*next);
                } else {
                    fail({"the node sent a reply to no command"});
                }
                continue;
            }
            const reply_handler on_reply = std::move(in_flight_.front());
            in_flight_.pop_front();
            on_reply(next);
        }
        is_answering_ = false;
        if (owner_ && !reader_.error().empty()) fail({reader_.error()});
        if (!owner_) fail_commands();
    }

    /// Sends all that is unsent. What is added meanwhile follows when it has been sent.
    void write() {
        if (unsent_.empty()) return;
        is_writing_ = true;
        sending_.clear();
        std::swap(sending_, unsent_);
        const auto on_written = [self = shared_from_this()](error_code e, std::size_t) {
            self->is_writing_ = false;
            if (!self->owner_) return;
            if (e) return self->fail({e.message()});
            self->write();
        };
        if (tls_) {
            asio::async_write(*tls_, asio::buffer(sending_), on_written);
        } else {
            asio::async_write(socket_, asio::buffer(sending_), on_written);
        }
    }

    connection* owner_;  ///< Null: closed.
    tcp::socket socket_;
    std::optional<tls_stream> tls_;
    reply_reader reader_;
    std::deque<reply_handler> in_flight_;  ///< Of the commands without a reply, in their order.
    std::string unsent_, sending_;
    std::array<char, std::size_t{16} * 1024> received_;
    bool is_connected_ = false, is_subscribed_ = false, is_writing_ = false, write_posted_ = false,
         is_answering_ = false;
};

connection::connection(asio::io_context& io, const node_address& address, event_handlers handlers)
    : io_(io), address_(address), handlers_(std::move(handlers)), resolver_(io) {}

connection::~connection() {
    if (link_) link_->close();
}

void connection::open() {
    ++generation_;
    error_code not_an_address;
    const auto ip = asio::ip::make_address(address_.host, not_an_address);
    if (!not_an_address) return connect_to({ip, address_.port});
    if (!candidates_.empty()) return try_next_address({});
    awaits_addresses_ = true;
    if (!std::exchange(is_resolving_, true)) resolve();
}

void connection::resolve() {
    resolver_.async_resolve(address_.host, std::to_string(address_.port),
                            [self = shared_from_this()](error_code e, const tcp::resolver::results_type& found) {
                                self->is_resolving_ = false;
                                if (self->closed_) return;
                                for (const auto& entry : found)
                                    self->candidates_.insert(self->candidates_.begin(), entry.endpoint());
                                if (std::exchange(self->awaits_addresses_, false))
                                    self->try_next_address("its host name can't be resolved: " + e.message());
                            });
}

void connection::try_next_address(const std::string& failure_reason) {
    if (candidates_.empty()) return report_lost({failure_reason});
    const auto next = candidates_.back();
    candidates_.pop_back();
    connect_to(next);
}

void connection::connect_to(const tcp::endpoint& endpoint) {
    link_ = std::make_shared<link>(*this);
    link_->open(endpoint);
}

void connection::close_link() {
    awaits_addresses_ = false;
    ++generation_;
    if (const auto closing = std::exchange(link_, nullptr)) closing->close();
}

void connection::drop(const std::string& reason) {
    close_link();
    report_lost({reason});
}

void connection::close() {
    closed_ = true;
    resolver_.cancel();
    close_link();
}

void connection::report_lost(loss what) {
    asio::post(io_, [self = shared_from_this(), what = std::move(what), generation = generation_] {
        if (!self->closed_ && generation == self->generation_ && !self->link_) self->handlers_.lost(what);
    });
}

bool connection::send(std::string_view command, reply_handler on_reply) {
    if (!link_) return false;
    link_->send(command, std::move(on_reply));
    return true;
}

void connection::subscribe(std::string_view channel) {
    if (link_) link_->subscribe(channel);
}

void connection::ping() {
    if (link_) link_->ping();
}

release_subscription::release_subscription(boost::asio::io_context& io, const node_address& address,
                                           std::string wake_mark, listener on_lease_end)
    : wake_mark_(std::move(wake_mark)), on_lease_end_(std::move(on_lease_end)), delay_(io), keepalive_(io) {
    connection::event_handlers handlers;
    handlers.connected = [this] { connection_->subscribe("fg:wake:" + wake_mark_); };
    handlers.lost = [this](const connection::loss&) {
        delay_.expires_after(reconnect_interval);
        delay_.async_wait([self = shared_from_this()](boost::system::error_code e) {
            if (!e && !self->stopped_) self->open();
        });
    };
    handlers.message = [this](const reply& r) { process_message(r); };
    connection_ = std::make_shared<connection>(io, address, std::move(handlers));
}

void release_subscription::start() {
    open();
    schedule_keepalive();
}

void release_subscription::stop() {
    stopped_ = true;
    delay_.cancel();
    keepalive_.cancel();
    connection_->close();
}

void release_subscription::open() {
    is_alive_ = true;
    connection_->open();
}

void release_subscription::schedule_keepalive() {
    keepalive_.expires_after(keepalive_interval);
    keepalive_.async_wait([self = shared_from_this()](boost::system::error_code e) {
        if (e || self->stopped_) return;
        if (std::exchange(self->is_alive_, false)) {
            self->connection_->ping();
        } else {
            self->connection_->drop("does not answer");
        }
        self->schedule_keepalive();
    });
}

void release_subscription::process_message(const reply& r) {
    is_alive_ = true;
    if (r.is_error()) return connection_->drop(r.text);
    if (const auto end = parse_lease_end(r)) on_lease_end_(end->ended, end->resource, end->revoked);
}

}  // namespace lockcore::redis
