#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace fencegate::runtime {

/// Threads that each run one io_context of their own, so that objects of one thread need no locks.
///
/// Threads:  start and stop from the thread that constructed it. The threads inherit its signal mask.
/// Lifetime: objects with work on a context are destroyed after stop() and before the io_threads.
class io_threads {
  public:
    /// `count`: 1 to 64 (http.threads).
    explicit io_threads(unsigned count);
    /// Destroys all handlers that did not run before the first context: one of them may own objects of another context.
    ~io_threads();
    io_threads(const io_threads&) = delete;
    io_threads& operator=(const io_threads&) = delete;

    /// Returns the contexts, one for each thread. Never empty; valid as long as the io_threads.
    std::vector<boost::asio::io_context*> contexts() const;

    void start();
    /// Stops the contexts and joins the threads. Unfinished work stays in the contexts until they are destroyed.
    void stop();

  private:
    using work_guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

    struct context : boost::asio::io_context {
        using boost::asio::io_context::io_context;
        using boost::asio::io_context::shutdown;
    };

    std::vector<std::unique_ptr<context>> contexts_;
    std::vector<work_guard> guards_;
    std::vector<std::thread> threads_;
};

/// Runs a coroutine that nothing awaits, on the executor.
///
/// Errors: an exception of the coroutine is thrown again in the thread that runs it, which ends the process. A loop
///         that ended in silence would be noticed only by what it no longer does.
void run_in_background(boost::asio::any_io_executor executor, boost::asio::awaitable<void> work);

/// Work that is done again and again, with a pause before each time.
///
/// Lifetime: shared with the coroutine, which may end after the owner has called stop().
class periodic : public std::enable_shared_from_this<periodic> {
  public:
    using duration = std::chrono::steady_clock::duration;

    virtual ~periodic() = default;
    periodic(const periodic&) = delete;
    periodic& operator=(const periodic&) = delete;

    /// Begins, on the executor. May be called once.
    void start(boost::asio::any_io_executor executor, duration first_pause);
    /// The work is not done again. Returns at once.
    ///
    /// Threads: any.
    void stop() { stopping_ = true; }

  protected:
    periodic() = default;

    /// Does the work once. Returns the pause before the next time, which may be another one after a failure.
    virtual boost::asio::awaitable<duration> run_once() = 0;
    bool is_stopping() const { return stopping_; }

  private:
    static boost::asio::awaitable<void> repeat(std::shared_ptr<periodic> self, duration pause);

    std::atomic<bool> stopping_{false};
};

}  // namespace fencegate::runtime
