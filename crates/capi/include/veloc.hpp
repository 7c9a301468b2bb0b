// VELOC's client API for C++ on Tierflow: thin classes over veloc.h.
#ifndef TIERFLOW_VELOC_HPP
#define TIERFLOW_VELOC_HPP

#include "veloc.h"

#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace veloc {

class client_t {
protected:
    static constexpr char default_mem_group[] = "default";
    using serializer_t = std::function<void(std::ostream &)>;
    using deserializer_t = std::function<bool(std::istream &)>;
    using observer_t = std::function<void(const std::string &name, int version)>;

public:
    virtual bool mem_protect(int id, void *ptr, size_t count, size_t base_size,
                             const std::string &name = default_mem_group) = 0;
    virtual bool mem_protect(int id, const serializer_t &s, const deserializer_t &d,
                             const std::string &name = default_mem_group) = 0;
    virtual bool mem_unprotect(int id, const std::string &name = default_mem_group) = 0;
    virtual void mem_clear(const std::string &name = default_mem_group) = 0;
    virtual bool register_observer(int type, const observer_t &observer) = 0;

    virtual std::string route_file(const std::string &original) = 0;
    virtual bool cleanup(const std::string &name) = 0;

    virtual bool checkpoint(const std::string &name, int version) = 0;
    virtual bool checkpoint_begin(const std::string &name, int version) = 0;
    virtual bool checkpoint_mem(int mode, const std::set<int> &ids) = 0;
    virtual bool checkpoint_end(bool success) = 0;
    virtual bool checkpoint_wait() = 0;
    virtual bool checkpoint_finished() = 0;

    virtual int restart_test(const std::string &name, int version, int target_rank = -1) = 0;
    virtual bool restart(const std::string &name, int version, int target_rank = -1) = 0;
    virtual bool restart_begin(const std::string &name, int version, int target_rank = -1) = 0;
    virtual size_t recover_size(int id) = 0;
    virtual bool recover_mem(int mode, const std::set<int> &ids) = 0;
    virtual bool restart_end(bool success) = 0;

    virtual ~client_t() {}
};

namespace detail {

inline client_t *&the_client() {
    static client_t *client = nullptr;
    return client;
}

// The one client of the process. Data structures with a serializer are protected as the bytes that it makes of them.
class client_impl_t final : public client_t {
    struct object_t {
        serializer_t write;
        deserializer_t read;
        std::string bytes;
    };
    using objects_t = std::map<int, object_t>;

    std::map<std::string, objects_t> objects;
    std::map<int, observer_t> observers;
    std::string current;

    static bool ok(int code) { return code == VELOC_SUCCESS; }

    // As in C: regions of the name if there are some, else those of none.
    std::map<std::string, std::set<int>> regions;

    const std::string group() const {
        auto own = regions.find(current);
        return own != regions.end() && !own->second.empty() ? current : default_mem_group;
    }

    objects_t &own_objects() { return objects[group()]; }

    bool hand_over(int id, object_t &object) {
        // An empty object has an address, too.
        return ok(VELOC_Region_protect(id, &object.bytes[0], object.bytes.size(), 1, group().c_str()));
    }

    bool serialize() {
        for (auto &entry : own_objects()) {
            std::ostringstream out;
            entry.second.write(out);
            entry.second.bytes = out.str();
            if (!out || !hand_over(entry.first, entry.second))
                return false;
        }
        return true;
    }

    static bool is_chosen(int mode, const std::set<int> &ids, int id) {
        return mode == VELOC_RECOVER_ALL || (ids.count(id) != 0) == (mode == VELOC_RECOVER_SOME);
    }

    static void observed(void *observer, const char *name, int version) {
        (*static_cast<observer_t *>(observer))(name, version);
    }

public:
    bool mem_protect(int id, void *ptr, size_t count, size_t base_size, const std::string &name) override {
        objects[name].erase(id);
        regions[name].insert(id);
        return ok(VELOC_Region_protect(id, ptr, count, base_size, name.c_str()));
    }

    bool mem_protect(int id, const serializer_t &s, const deserializer_t &d, const std::string &name) override {
        object_t &object = objects[name][id];
        object = object_t{s, d, std::string()};
        regions[name].insert(id);
        return ok(VELOC_Region_protect(id, &object.bytes[0], 0, 1, name.c_str()));
    }

    bool mem_unprotect(int id, const std::string &name) override {
        objects[name].erase(id);
        regions[name].erase(id);
        return ok(VELOC_Region_unprotect(id, name.c_str()));
    }

    void mem_clear(const std::string &name) override {
        objects.erase(name);
        regions.erase(name);
        VELOC_Region_clear(name.c_str());
    }

    bool register_observer(int type, const observer_t &observer) override {
        bool is_first = observers.count(type) == 0;
        observer_t &kept = observers[type];
        kept = observer;
        if (!is_first || ok(VELOC_Observe(type, observed, &kept)))
            return true;
        observers.erase(type);
        return false;
    }

    std::string route_file(const std::string &original) override {
        char routed[VELOC_MAX_NAME];
        return ok(VELOC_Route_file(original.c_str(), routed)) ? routed : std::string();
    }

    bool cleanup(const std::string &name) override { return ok(VELOC_Cleanup(name.c_str())); }

    bool checkpoint(const std::string &name, int version) override {
        bool waited = checkpoint_wait();
        // The checkpoint is begun nevertheless, as the other ranks begin it.
        if (!checkpoint_begin(name, version))
            return false;
        bool success = waited && checkpoint_mem(VELOC_CKPT_ALL, {});
        return checkpoint_end(success) && success;
    }

    bool checkpoint_begin(const std::string &name, int version) override {
        current = name;
        return ok(VELOC_Checkpoint_begin(name.c_str(), version));
    }

    bool checkpoint_mem(int mode, const std::set<int> &ids) override {
        std::vector<int> list(ids.begin(), ids.end());
        return serialize() && ok(VELOC_Checkpoint_selective(mode, list.data(), static_cast<int>(list.size())));
    }

    bool checkpoint_end(bool success) override { return ok(VELOC_Checkpoint_end(success)); }
    bool checkpoint_wait() override { return ok(VELOC_Checkpoint_wait()); }
    bool checkpoint_finished() override { return ok(VELOC_Checkpoint_finished()); }

    int restart_test(const std::string &name, int version, int target_rank) override {
        return VELOC_Restart_test_rank(name.c_str(), version, target_rank);
    }

    bool restart(const std::string &name, int version, int target_rank) override {
        if (!restart_begin(name, version, target_rank))
            return false;
        bool success = recover_mem(VELOC_RECOVER_ALL, {});
        return restart_end(success) && success;
    }

    bool restart_begin(const std::string &name, int version, int target_rank) override {
        current = name;
        return ok(VELOC_Restart_begin_rank(name.c_str(), version, target_rank));
    }

    size_t recover_size(int id) override {
        int64_t bytes = VELOC_Recover_bytes(id);
        return bytes < 0 ? 0 : static_cast<size_t>(bytes);
    }

    bool recover_mem(int mode, const std::set<int> &ids) override {
        for (auto &entry : own_objects()) {
            entry.second.bytes.resize(recover_size(entry.first));
            if (!hand_over(entry.first, entry.second))
                return false;
        }
        std::vector<int> list(ids.begin(), ids.end());
        if (!ok(VELOC_Recover_selective(mode, list.data(), static_cast<int>(list.size()))))
            return false;
        for (auto &entry : own_objects()) {
            if (!is_chosen(mode, ids, entry.first) || VELOC_Recover_bytes(entry.first) < 0)
                continue;
            std::istringstream in(entry.second.bytes);
            if (!entry.second.read(in))
                return false;
        }
        return true;
    }

    bool restart_end(bool success) override { return ok(VELOC_Restart_end(success)); }

    ~client_impl_t() override {
        // After this, get_client() makes another one.
        if (the_client() == this)
            the_client() = nullptr;
        VELOC_Finalize(1);
    }
};

inline client_t *opened(int code) {
    if (code != VELOC_SUCCESS)
        throw std::runtime_error(tf_error_message());
    if (the_client() == nullptr)
        the_client() = new client_impl_t();
    return the_client();
}

} // namespace detail

// The client of this process, which is made by the first call, and by the first after it was deleted. Throws std::runtime_error.
inline client_t *get_client(unsigned int id, const std::string &cfg_file) {
    return detail::opened(VELOC_Init_single(id, cfg_file.c_str()));
}

#ifndef VELOC_WITHOUT_MPI
inline client_t *get_client(MPI_Comm comm, const std::string &cfg_file) {
    return detail::opened(VELOC_Init(comm, cfg_file.c_str()));
}
#endif

} // namespace veloc

#endif
