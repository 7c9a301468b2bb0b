// Tierflow from C++ (17): what tierflow.h has, with objects that end what they began, and exceptions.
#ifndef TIERFLOW_HPP
#define TIERFLOW_HPP

#include "tierflow.h"

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tierflow {

// What a call did not do, and by its code what to do next.
class Error : public std::runtime_error {
public:
    explicit Error(int code) : std::runtime_error(tf_error_message()), code_(static_cast<tf_status>(code)) {}
    tf_status code() const noexcept { return code_; }

private:
    tf_status code_;
};

inline void check(int code)
{
    if (code != TF_OK)
        throw Error(code);
}

using Region = tf_region;

// Memory as a region: an object, or elements one after the other.
template <typename T> Region bytes(T &object, tf_place place = TF_PLACE_ANY)
{
    static_assert(std::is_trivially_copyable<T>::value, "only plain bytes are checkpointed");
    return {static_cast<void *>(&object), sizeof object, place};
}

template <typename T> Region elements(T *first, std::size_t count, tf_place place = TF_PLACE_ANY)
{
    static_assert(std::is_trivially_copyable<T>::value, "only plain bytes are checkpointed");
    return {first, count * sizeof(T), place};
}

// Host memory that the engines of this process share.
class HostPool {
public:
    // Engines give each other `slab` bytes at a time; 0: as many as is usual.
    explicit HostPool(std::uint64_t bytes, std::uint64_t slab = 0) { check(tf_host_pool_new(bytes, slab, &handle_)); }
    ~HostPool() { tf_host_pool_free(handle_); }
    HostPool(const HostPool &) = delete;
    HostPool &operator=(const HostPool &) = delete;
    tf_host_pool handle() const noexcept { return handle_; }

private:
    tf_host_pool handle_ = 0;
};

// What may be chosen about an engine: the keys are those of tf_options_set.
class Options {
public:
    Options() { check(tf_options_new(&handle_)); }
    ~Options() { tf_options_free(handle_); }
    Options(const Options &) = delete;
    Options &operator=(const Options &) = delete;

    Options &set(const std::string &key, const std::string &value)
    {
        check(tf_options_set(handle_, key.c_str(), value.c_str()));
        return *this;
    }

    Options &set_pool(const HostPool &pool)
    {
        check(tf_options_set_pool(handle_, pool.handle()));
        return *this;
    }

    tf_options handle() const noexcept { return handle_; }

private:
    tf_options handle_ = 0;
};

// Room that is lent to be written, or a version that is lent to be read. What is not finished is given up.
class Slot {
public:
    Slot(tf_slot handle, void *address, std::size_t size) : handle_(handle), address_(address), size_(size) {}
    Slot(Slot &&other) noexcept
        : handle_(std::exchange(other.handle_, 0)), address_(other.address_), size_(other.size_)
    {
    }
    Slot &operator=(Slot &&other) = delete;
    ~Slot()
    {
        if (handle_ != 0)
            tf_slot_end(handle_, TF_DROP, nullptr);
    }

    void *data() const noexcept { return address_; }
    std::size_t size() const noexcept { return size_; }
    // If they throw, the slot is as it was.
    void finish(void *stream = nullptr) { end(TF_FINISH, stream); }
    void give_up(void *stream = nullptr) { end(TF_GIVE_UP, stream); }

private:
    void end(tf_slot_end_how how, void *stream)
    {
        check(tf_slot_end(handle_, how, stream));
        handle_ = 0;
    }

    tf_slot handle_;
    void *address_;
    std::size_t size_;
};

// The notice that a job has to go: given by one of these signals, such as SIGTERM, which leaves it `grace` seconds, or by give().
class Notice {
public:
    explicit Notice(const std::vector<int> &signals = {}, double grace = 0)
    {
        check(tf_notice_open(signals.data(), signals.size(), grace, &handle_));
    }
    ~Notice() { tf_notice_close(handle_); }
    Notice(const Notice &) = delete;
    Notice &operator=(const Notice &) = delete;

    void give(double grace) { check(tf_notice_give(handle_, grace)); }
    // Seconds; infinitely many until it is given.
    double left() const
    {
        double seconds = 0;
        check(tf_notice_left(handle_, &seconds));
        return seconds;
    }

private:
    tf_notice handle_ = 0;
};

// An engine. Its end waits for what is on its way, and loses what cannot arrive. close() tells that: if it throws, the engine stays open,
// to be closed again.
class Engine {
public:
    explicit Engine(const Options &options) { check(tf_open(options.handle(), nullptr, &handle_)); }
    Engine(const Options &options, const tf_group &group) { check(tf_open(options.handle(), &group, &handle_)); }
    Engine(Engine &&other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
    Engine &operator=(Engine &&other) = delete;
    ~Engine()
    {
        if (handle_ != 0 && tf_close(handle_) != TF_OK)
            tf_end(handle_);
    }

    void close()
    {
        check(tf_close(handle_));
        handle_ = 0;
    }
    // Without waiting. If it throws, what it names is lost, and the engine is ended nevertheless, but for TF_ARGUMENT.
    void end()
    {
        int code = tf_end(handle_);
        if (code != TF_ARGUMENT)
            handle_ = 0;
        check(code);
    }
    tf_engine handle() const noexcept { return handle_; }

    void checkpoint(std::uint64_t version, std::initializer_list<Region> regions, const tf_call *call = nullptr)
    {
        check(tf_checkpoint(handle_, version, regions.begin(), regions.size(), call));
    }
    void restore(std::uint64_t version, std::initializer_list<Region> regions, const tf_call *call = nullptr)
    {
        check(tf_restore(handle_, version, regions.begin(), regions.size(), call));
    }

    void checkpoint_named(std::uint64_t version, std::initializer_list<tf_named> regions, const tf_call *call = nullptr)
    {
        check(tf_checkpoint_named(handle_, version, regions.begin(), regions.size(), call));
    }
    void restore_named(std::uint64_t version, std::initializer_list<tf_named> regions, const tf_call *call = nullptr)
    {
        check(tf_restore_named(handle_, version, regions.begin(), regions.size(), call));
    }
    // Of another rank's part of a version.
    void restore_rank(std::uint64_t version, std::uint32_t rank, std::initializer_list<tf_named> regions)
    {
        check(tf_restore_rank(handle_, version, rank, regions.begin(), regions.size()));
    }
    std::uint64_t region_size(std::uint64_t version, const std::string &name) const
    {
        std::uint64_t bytes = 0;
        check(tf_region_size(handle_, version, name.c_str(), &bytes));
        return bytes;
    }
    // Names and bytes, in their order.
    std::vector<std::pair<std::string, std::uint64_t>> regions(std::uint64_t version) const
    {
        std::vector<std::pair<std::string, std::uint64_t>> all;
        char name[1025];
        std::uint64_t bytes = 0;
        for (int code; (code = tf_region_at(handle_, version, all.size(), name, sizeof name, &bytes)) != TF_UNKNOWN;) {
            check(code);
            all.emplace_back(name, bytes);
        }
        size(version);
        return all;
    }

    // Waits for room for so many seconds; for ever if they are less than 0.
    Slot produce(std::uint64_t version, std::size_t bytes, double seconds = -1)
    {
        tf_slot slot = 0;
        void *address = nullptr;
        check(tf_produce_within(handle_, version, bytes, seconds, &slot, &address));
        return Slot(slot, address, bytes);
    }
    // The bytes are not to be written.
    Slot consume(std::uint64_t version, double seconds = -1)
    {
        tf_slot slot = 0;
        const void *address = nullptr;
        std::size_t bytes = 0;
        check(tf_consume_within(handle_, version, seconds, &slot, &address, &bytes));
        return Slot(slot, const_cast<void *>(address), bytes);
    }

    void hint(const std::vector<std::uint64_t> &versions)
    {
        check(tf_hint(handle_, versions.data(), versions.size()));
    }
    /* Before all that are hinted. */
    void hint_next(const std::vector<std::uint64_t> &versions)
    {
        check(tf_hint_next(handle_, versions.data(), versions.size()));
    }
    void forget_hints() { check(tf_forget_hints(handle_)); }
    void forget_hints(const std::vector<std::uint64_t> &versions)
    {
        check(tf_forget_hints_of(handle_, versions.data(), versions.size()));
    }
    /* The first of `count` numbers. */
    std::uint64_t reserve(std::uint64_t count)
    {
        std::uint64_t first = 0;
        check(tf_reserve(handle_, count, &first));
        return first;
    }
    void prefetch_start() { check(tf_prefetch_start(handle_)); }
    void discard(std::uint64_t version) { check(tf_discard(handle_, version)); }
    void wait(double seconds = -1) { check(tf_wait(handle_, seconds)); }
    void wait_version(std::uint64_t version, double seconds = -1)
    {
        check(tf_wait_version(handle_, version, seconds));
    }

    void protect() { check(tf_protect(handle_)); }
    /* Returns the bytes that the cache uses now. */
    std::uint64_t resize_device_cache(std::size_t bytes, double seconds = -1)
    {
        std::uint64_t usable = 0;
        check(tf_resize_device_cache(handle_, bytes, seconds, &usable));
        return usable;
    }
    std::uint64_t resize_host_cache(std::size_t bytes, double seconds = -1)
    {
        std::uint64_t usable = 0;
        check(tf_resize_host_cache(handle_, bytes, seconds, &usable));
        return usable;
    }

    bool is_durable(std::uint64_t version) const
    {
        int durable = 0;
        check(tf_is_durable(handle_, version, &durable));
        return durable != 0;
    }
    bool keeps_restored() const
    {
        int keeps = 0;
        check(tf_keeps_restored(handle_, &keeps));
        return keeps != 0;
    }
    tf_suspension suspend(double seconds)
    {
        tf_suspension suspension;
        check(tf_suspend(handle_, seconds, &suspension));
        return suspension;
    }
    tf_suspension suspend_to(std::uint64_t version, double seconds)
    {
        tf_suspension suspension;
        check(tf_suspend_to(handle_, version, seconds, &suspension));
        return suspension;
    }
    void suspend_wait(std::uint64_t version, double seconds) { check(tf_suspend_wait(handle_, version, seconds)); }
    double time_to_durable(std::uint64_t version) const
    {
        double seconds = 0;
        check(tf_time_to_durable(handle_, version, &seconds));
        return seconds;
    }

    std::optional<std::uint64_t> latest(std::uint64_t before = UINT64_MAX) const
    {
        std::uint64_t version = 0;
        int code = tf_latest(handle_, before, &version);
        if (code == TF_UNKNOWN)
            return std::nullopt;
        check(code);
        return version;
    }
    std::vector<std::uint64_t> versions() const
    {
        std::vector<std::uint64_t> all;
        std::size_t count = 0;
        do {
            all.resize(count);
            check(tf_versions(handle_, all.data(), all.size(), &count));
        } while (count > all.size());
        all.resize(count);
        return all;
    }
    std::uint64_t size(std::uint64_t version) const
    {
        std::uint64_t bytes = 0;
        check(tf_size(handle_, version, &bytes));
        return bytes;
    }

    tf_metrics metrics() const
    {
        tf_metrics metrics{};
        check(tf_metrics_read(handle_, &metrics));
        return metrics;
    }
    std::string report() const { return text_of(tf_report); }
    std::string open_metrics() const { return text_of(tf_open_metrics); }
    std::string statistics() const { return text_of(tf_statistics); }
    void write_timeline(const std::string &path) const { check(tf_write_timeline(handle_, path.c_str())); }

private:
    std::string text_of(int (*read)(tf_engine, char *, std::size_t, std::size_t *)) const
    {
        std::size_t length = 0;
        check(read(handle_, nullptr, 0, &length));
        std::string text(length + 1, '\0');
        check(read(handle_, &text[0], text.size(), &length));
        text.resize(length < text.size() ? length : text.size() - 1);
        return text;
    }

    tf_engine handle_ = 0;
};

// Which states of a reversed computation are stored, and which are computed again.
class Schedule {
public:
    Schedule(const tf_machine &machine, std::uint64_t steps) { check(tf_schedule_new(&machine, steps, &handle_)); }
    ~Schedule() { tf_schedule_free(handle_); }
    Schedule(const Schedule &) = delete;
    Schedule &operator=(const Schedule &) = delete;
    // Seconds that it takes.
    double expected() const
    {
        double seconds = 0;
        check(tf_schedule_times(handle_, &seconds, nullptr));
        return seconds;
    }
    // Seconds that no schedule beats.
    double bound() const
    {
        double seconds = 0;
        check(tf_schedule_times(handle_, nullptr, &seconds));
        return seconds;
    }
    // All actions that are left, up to the last one.
    std::vector<tf_action> actions()
    {
        std::vector<tf_action> all;
        for (tf_action action; check(tf_schedule_next(handle_, &action)), action.kind != TF_ENDED;)
            all.push_back(action);
        return all;
    }

private:
    tf_schedule handle_ = 0;
};

// Runs a schedule over an engine that keeps what was restored (`after_restore`, which is `keep` if nothing else is set): forward to the
// end, and back. Another engine throws std::invalid_argument before the first step. Of the computation:
//   void advance(std::uint64_t step)    makes the state of `step` that of the next step, in place
//   void end_forward()                  the state after the last step is there for the first time
//   void reverse(std::uint64_t step)    reverses `step`, whose state is there
//   Region state()                      the memory of the state
// States have numbers that nobody else uses. The restores of states that the sweep stores are hinted in their order before it, those of
// states that are stored on the way back when they are near. Nothing is left in the engine, also if the computation throws. Returns how
// many states were stored. A schedule serves one run: a second one throws std::invalid_argument.
template <typename Computation> std::uint64_t run_adjoint(Engine &engine, Schedule &schedule, Computation &computation)
{
    struct Stored {
        Engine &engine;
        std::map<std::uint64_t, std::uint64_t> versions; // by their step
        std::vector<std::uint64_t> hints;
        ~Stored()
        {
            for (const auto &one : versions)
                tf_discard(engine.handle(), one.second);
            tf_forget_hints_of(engine.handle(), hints.data(), hints.size());
        }
    } stored{engine, {}, {}};
    if (!engine.keeps_restored())
        throw std::invalid_argument("the engine discards what was restored, and a schedule restores states more than once: "
                                    "leave `after_restore` at `keep`");
    const std::vector<tf_action> actions = schedule.actions();
    if (actions.empty())
        throw std::invalid_argument("the schedule was used up: make a new one for each run");
    std::uint64_t count = 0;
    for (const tf_action &action : actions)
        count += action.kind == TF_SAVE;
    std::uint64_t next = engine.reserve(count), late = 0; // the first version that the reversal stores
    std::map<std::uint64_t, std::uint64_t> latest;
    std::vector<std::uint64_t> version_of; // of each action
    for (const tf_action &action : actions) {
        if (action.kind == TF_SAVE)
            latest[action.step] = next++;
        if (action.kind == TF_END_FORWARD)
            late = next;
        const bool is_of_state = action.kind == TF_SAVE || action.kind == TF_RESTART || action.kind == TF_FORGET;
        version_of.push_back(is_of_state ? latest.at(action.step) : 0);
        if (action.kind == TF_RESTART)
            stored.hints.push_back(version_of.back());
    }
    std::vector<std::uint64_t> swept;
    for (const std::uint64_t version : stored.hints)
        if (version < late)
            swept.push_back(version);
    engine.hint(swept);
    // Hints the restores up to the end of a state that the sweep stored, if states are stored meanwhile.
    const auto hint_gap = [&](std::size_t at) {
        std::vector<std::uint64_t> gap;
        bool stores = false;
        for (; at < actions.size() && (actions[at].kind != TF_FORGET || version_of[at] >= late); at++) {
            stores |= actions[at].kind == TF_SAVE;
            if (actions[at].kind == TF_RESTART)
                gap.push_back(version_of[at]);
        }
        if (stores)
            engine.hint_next(gap);
    };
    bool is_back = false;
    for (std::size_t at = 0; at < actions.size(); at++) {
        const tf_action &action = actions[at];
        switch (action.kind) {
        case TF_FORWARD:
            for (std::uint64_t step = action.step; step < action.to; step++)
                computation.advance(step);
            break;
        case TF_SAVE:
            engine.checkpoint(version_of[at], {computation.state()});
            stored.versions[action.step] = version_of[at];
            break;
        case TF_END_FORWARD:
            is_back = true;
            hint_gap(at + 1);
            computation.end_forward();
            break;
        case TF_RESTART: engine.restore(stored.versions.at(action.step), {computation.state()}); break;
        case TF_REVERSE: computation.reverse(action.step); break;
        default:
            engine.discard(stored.versions.at(action.step));
            stored.versions.erase(action.step);
            if (is_back && version_of[at] < late)
                hint_gap(at + 1);
        }
    }
    return count;
}

} // namespace tierflow

#endif
