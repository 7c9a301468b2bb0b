// The gradients of a wave, of heat and of Lorenz's equations, by their adjoints, with some of the states in an engine.
//
//   c++ -std=c++17 adjoints.cpp -ltierflow && ./a.out
//
// examples/adjoints.rs of tierflow-schedule and adjoints.py of the Python package are the same in Rust and Python.
#include "tierflow.hpp"

#include <cmath>
#include <cstdio>

using State = std::vector<double>;

// A recurrence: the step from one state to the next, and its adjoint at a state.
struct Problem {
    const char *name;
    std::uint64_t steps;
    State first;
    State (*step)(const State &state);
    State (*back)(const State &state, const State &adjoint);
};

static double laplace(const double *u, std::size_t count, std::size_t i)
{
    return u[(i + 1) % count] - 2 * u[i] + u[(i + count - 1) % count];
}

// The equation u_tt = u_xx - u^3. The state is u and its velocity.
static State wave(const State &state)
{
    const std::size_t half = state.size() / 2;
    State next(state.size());
    for (std::size_t i = 0; i < half; i++) {
        next[half + i] = state[half + i] + 0.1 * (laplace(state.data(), half, i) - state[i] * state[i] * state[i]);
        next[i] = state[i] + 0.1 * next[half + i];
    }
    return next;
}

static State wave_back(const State &state, const State &adjoint)
{
    const std::size_t half = state.size() / 2;
    State before(state.size());
    for (std::size_t i = 0; i < half; i++)
        before[half + i] = adjoint[half + i] + 0.1 * adjoint[i];
    for (std::size_t i = 0; i < half; i++)
        before[i] = adjoint[i] + 0.1 * (laplace(&before[half], half, i) - 3 * state[i] * state[i] * before[half + i]);
    return before;
}

// A rod with a source of heat that depends on the temperature.
static State heat(const State &u)
{
    State next(u.size());
    for (std::size_t i = 0; i < u.size(); i++)
        next[i] = u[i] + 0.2 * laplace(u.data(), u.size(), i) + 0.05 * u[i] * (1 - u[i]);
    return next;
}

static State heat_back(const State &u, const State &v)
{
    State before(u.size());
    for (std::size_t i = 0; i < u.size(); i++)
        before[i] = v[i] + 0.2 * laplace(v.data(), v.size(), i) + 0.05 * (1 - 2 * u[i]) * v[i];
    return before;
}

// Lorenz's equations from many starting points of three numbers each.
static State lorenz(const State &state)
{
    State next(state.size());
    for (std::size_t i = 0; i < state.size(); i += 3) {
        const double x = state[i], y = state[i + 1], z = state[i + 2];
        next[i] = x + 0.002 * 10 * (y - x);
        next[i + 1] = y + 0.002 * (x * (28 - z) - y);
        next[i + 2] = z + 0.002 * (x * y - 8.0 / 3 * z);
    }
    return next;
}

static State lorenz_back(const State &state, const State &adjoint)
{
    State before(state.size());
    for (std::size_t i = 0; i < state.size(); i += 3) {
        const double *s = &state[i], *a = &adjoint[i];
        before[i] = a[0] + 0.002 * (-10 * a[0] + (28 - s[2]) * a[1] + s[1] * a[2]);
        before[i + 1] = a[1] + 0.002 * (10 * a[0] - a[1] + s[0] * a[2]);
        before[i + 2] = a[2] + 0.002 * (-s[0] * a[1] - 8.0 / 3 * a[2]);
    }
    return before;
}

// A problem on its way through a schedule. The objective is half the sum of the squares of the last state.
struct Running {
    const Problem &problem;
    State now, adjoint;

    void advance(std::uint64_t) { now = problem.step(now); }
    void end_forward() { adjoint = now; }
    void reverse(std::uint64_t) { adjoint = problem.back(now, adjoint); }
    tierflow::Region state() { return tierflow::elements(now.data(), now.size()); }
};

static State stored_gradient(const Problem &problem)
{
    std::vector<State> states{problem.first};
    while (states.size() <= problem.steps)
        states.push_back(problem.step(states.back()));
    State adjoint = states.back();
    for (std::size_t step = problem.steps; step-- > 0;)
        adjoint = problem.back(states[step], adjoint);
    return adjoint;
}

// Returns the objective of a run whose first state is moved by `size` along a direction.
static double objective(const Problem &problem, double size)
{
    State state = problem.first;
    double sum = 0;
    for (std::size_t i = 0; i < state.size(); i++)
        state[i] += size * std::cos(0.3 * static_cast<double>(i));
    for (std::uint64_t step = 0; step < problem.steps; step++)
        state = problem.step(state);
    for (double one : state)
        sum += 0.5 * one * one;
    return sum;
}

// Returns the order in which the error of the gradient's prediction of the objective shrinks with the distance: 2 if the gradient is right.
static double order(const Problem &problem, const State &gradient)
{
    double slope = 0, rest[2];
    for (std::size_t i = 0; i < gradient.size(); i++)
        slope += gradient[i] * std::cos(0.3 * static_cast<double>(i));
    for (int half = 0; half < 2; half++) {
        const double size = half ? 5e-5 : 1e-4;
        rest[half] = std::fabs(objective(problem, size) - objective(problem, 0) - size * slope);
    }
    return std::log2(rest[0] / rest[1]);
}

int main()
{
    State waves(1000), temperatures(1000), starts(300);
    for (std::size_t i = 0; i < waves.size(); i++) {
        const double sine = std::sin(0.05 * static_cast<double>(i));
        waves[i] = sine;
        temperatures[i] = 0.5 + 0.4 * sine;
        if (i < starts.size())
            starts[i] = 5 + sine;
    }
    const Problem problems[] = {{"wave", 200, waves, wave, wave_back},
                                {"heat", 200, temperatures, heat, heat_back},
                                {"Lorenz", 300, starts, lorenz, lorenz_back}};
    tierflow::Engine engine(
        tierflow::Options().set("device", "host").set("device_cache", "64KiB").set("host_cache", "4MiB"));
    for (const Problem &problem : problems) {
        tf_machine machine = {};
        machine.forward = machine.backward = 1e-3;
        machine.state = problem.first.size() * sizeof(double);
        machine.device = 8 * machine.state;
        machine.count = 1;
        machine.tiers[0].room = UINT64_MAX;
        // A state takes five steps over this link.
        machine.tiers[0].down = machine.tiers[0].up = static_cast<double>(machine.state) / 5e-3;
        tierflow::Schedule schedule(machine, problem.steps);
        Running running{problem, problem.first, {}};
        const std::uint64_t stored = tierflow::run_adjoint(engine, schedule, running);
        const double taylor = order(problem, running.adjoint);
        std::printf("%s: %d steps, %d states stored, Taylor %.4f\n", problem.name, static_cast<int>(problem.steps),
                    static_cast<int>(stored), taylor);
        if (running.adjoint != stored_gradient(problem) || !(taylor > 1.99) || !engine.versions().empty()) {
            std::fprintf(stderr, "the gradient of %s is wrong\n", problem.name);
            return 1;
        }
    }
    engine.close();
    return 0;
}
