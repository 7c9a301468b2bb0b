//! Tests of the propagators against physics and against each other.

use anyhow::Result;
use tierflow_device::{Choice, Device, Memory, open};

use crate::cuda::Cuda;
use crate::grid::{Grid, Spread};
use crate::host::Host;
use crate::model::Model;
use crate::propagator::{Medium, Propagator, Traces, Wavefield, medium, read};
use crate::stencil::Record;
use crate::wavelet;

/// A propagator and the medium it works in.
struct Lab {
    device: Device,
    propagator: Box<dyn Propagator>,
    medium: Medium,
}

impl Lab {
    fn new(choice: Choice, model: &Model, pad: usize) -> Self {
        let device = open(choice).unwrap();
        let grid = Grid::new(model.shape, pad, model.spacing, model.range().1).unwrap();
        let propagator: Box<dyn Propagator> = match choice {
            Choice::Host => Box::new(Host::new(&device, grid).unwrap()),
            _ => Box::new(Cuda::new(&device, grid).unwrap()),
        };
        let medium = medium(&device, propagator.as_ref(), model).unwrap();
        Self {
            device,
            propagator,
            medium,
        }
    }

    fn host(model: &Model, pad: usize) -> Self {
        Self::new(Choice::Host, model, pad)
    }

    fn grid(&self) -> &Grid {
        self.propagator.grid()
    }

    fn wavefield(&self) -> Wavefield {
        let field = Wavefield::new(&self.device, self.grid()).unwrap();
        self.propagator.clear(&field.now).unwrap();
        self.propagator.clear(&field.before).unwrap();
        field
    }

    /// Shoots in one cell and listens at the spread.
    fn shoot(&self, cell: usize, signal: &[f32], spread: Spread) -> (Wavefield, Traces) {
        let traces = Traces::new(&self.device, spread, signal.len()).unwrap();
        let mut field = self.wavefield();
        let p = &self.propagator;
        for (n, &amplitude) in signal.iter().enumerate() {
            p.step(&self.medium, &mut field).unwrap();
            p.inject_source(&self.medium, &field, cell, amplitude)
                .unwrap();
            p.record(&field, &traces, n, Record::Store).unwrap();
        }
        (field, traces)
    }

    fn floats(&self, memory: &Memory) -> Vec<f32> {
        read(self.propagator.as_ref(), memory).unwrap()
    }

    fn map(&self, bytes_per_cell: usize) -> Memory {
        let memory = self
            .device
            .alloc(self.grid().cells() * bytes_per_cell)
            .unwrap();
        self.propagator.clear(&memory).unwrap();
        memory
    }
}

fn even(shape: [usize; 3], spacing: f32, velocity: f32) -> Model {
    Model::new(shape, spacing, vec![velocity; shape.iter().product()]).unwrap()
}

fn peak(values: &[f32]) -> f32 {
    values.iter().map(|v| v.abs()).fold(0.0, f32::max)
}

/// A reproducible signal without structure.
fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// In a homogeneous volume the field at distance r is `h s(t - r / v) / 4πr`, exactly.
#[test]
fn a_point_source_in_3d_matches_the_analytic_solution() {
    let (spacing, velocity, frequency) = (10.0, 2000.0, 12.0);
    let lab = Lab::host(&even([48, 32, 32], spacing, velocity), 28);
    let dt = lab.grid().dt;
    let steps = 150;
    let signal = wavelet::ricker(frequency, dt, steps);
    let source = lab.grid().index([6, 16, 16]);
    for cells in [8, 16, 24] {
        let at = Spread::single(lab.grid().index([6 + cells, 16, 16]));
        let seen = lab.floats(&lab.shoot(source, &signal, at).1.samples);
        let distance = cells as f32 * spacing;
        let expected: Vec<f32> = (0..steps)
            .map(|n| {
                // The scheme adds the source of step n after step n - 1.
                let t = (n + 1) as f32 * dt - distance / velocity;
                let a =
                    (std::f32::consts::PI * frequency * (t - wavelet::delay(frequency))).powi(2);
                spacing * (1.0 - 2.0 * a) * (-a).exp() / (4.0 * std::f32::consts::PI * distance)
            })
            .collect();
        let error: Vec<f32> = seen.iter().zip(&expected).map(|(s, e)| s - e).collect();
        let relative = peak(&error) / peak(&expected);
        assert!(
            relative < 0.025,
            "{cells} cells away the error is {relative}"
        );
    }
}

#[test]
fn the_absorbing_layer_leaves_little_behind() {
    let lab = Lab::host(&even([60, 1, 60], 10.0, 2000.0), 40);
    let dt = lab.grid().dt;
    let at = lab.grid().index([30, 0, 30]);
    let signal = |steps| wavelet::ricker(22.0, dt, steps);
    // When the wave fills the model, and after it has crossed it and its layers twice.
    let full = lab
        .shoot(at, &signal((0.2 / dt) as usize), Spread::single(at))
        .0;
    let gone = lab
        .shoot(at, &signal((1.2 / dt) as usize), Spread::single(at))
        .0;
    let (full, gone) = (peak(&lab.floats(&full.now)), peak(&lab.floats(&gone.now)));
    assert!(full > 0.01, "no wave: {full}");
    assert!(gone < 0.01 * full, "{} of the wave is left", gone / full);
}

/// Swapping source and receiver changes no sample in any medium: the operator is its own adjoint up to time reversal.
/// Therefore the backward pass is the adjoint of the forward one.
#[test]
fn sources_and_receivers_are_interchangeable() -> Result<()> {
    for shape in [[50, 1, 40], [24, 20, 22]] {
        let lab = Lab::host(&Model::made(shape, 10.0)?, 10);
        let y = shape[1] / 2;
        // Cell a is near the absorbing layer, and the velocities differ.
        let a = lab.grid().index([3, y, 2]);
        let b = lab.grid().index([shape[0] - 5, y, shape[2] - 4]);
        let steps = 250;
        let (signal, other) = (noise(steps, 1), noise(steps, 2));
        let heard_at_b = lab.floats(&lab.shoot(a, &signal, Spread::single(b)).1.samples);
        let heard_at_a = lab.floats(&lab.shoot(b, &signal, Spread::single(a)).1.samples);
        let scale = peak(&heard_at_b);
        assert!(scale > 1e-4, "nothing heard");
        for (p, q) in heard_at_a.iter().zip(&heard_at_b) {
            assert!((p - q).abs() < 1e-4 * scale, "{p} and {q}");
        }
        // <F signal, other> = <signal, F* other>, F* being the backward pass.
        let backwards: Vec<f32> = other.iter().rev().copied().collect();
        let mut adjoint = lab.floats(&lab.shoot(b, &backwards, Spread::single(a)).1.samples);
        adjoint.reverse();
        let dot = |x: &[f32], y: &[f32]| -> f64 {
            x.iter()
                .zip(y)
                .map(|(x, y)| f64::from(*x) * f64::from(*y))
                .sum()
        };
        let (left, right) = (dot(&heard_at_b, &other), dot(&signal, &adjoint));
        let size = dot(&heard_at_b, &heard_at_b).sqrt() * dot(&other, &other).sqrt();
        assert!((left - right).abs() < 1e-4 * size, "{left} and {right}");
    }
    Ok(())
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for shape in [[200, 1, 120], [40, 30, 36]] {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                let lab = Lab::host(&Model::made(shape, 10.0).unwrap(), 12);
                let spread = Spread::surface(lab.grid(), 2);
                let source = lab.grid().index([shape[0] / 3, shape[1] / 2, 2]);
                let (field, traces) = lab.shoot(source, &noise(80, 3), spread);
                let (image, map) = (lab.map(4), lab.map(8));
                lab.propagator.correlate(&field, &field, &image).unwrap();
                lab.propagator.illuminate(&field, &map).unwrap();
                [field.now, field.before, traces.samples, image, map]
                    .map(|memory| read::<u8>(lab.propagator.as_ref(), &memory).unwrap())
            })
        };
        let alone = run(1);
        assert!(alone.iter().all(|bytes| bytes.iter().any(|b| *b != 0)));
        assert_eq!(alone, run(3));
        assert_eq!(alone, run(7));
    }
}

#[test]
fn the_illumination_is_the_same_in_any_order() {
    let fields: Vec<Vec<f32>> = (0..40)
        .map(|i| {
            noise(500, i)
                .iter()
                .map(|v| v * 10f32.powi(i as i32 % 9 - 6))
                .collect()
        })
        .collect();
    let sum = |order: &[u64]| {
        let mut map = vec![0; 500];
        order
            .iter()
            .for_each(|&i| crate::stencil::illuminate(&fields[i as usize], &mut map));
        map
    };
    let reverse = sum(&crate::cli::Order::Reverse.sequence(40));
    assert!(reverse.iter().all(|v| *v > 0));
    assert_eq!(reverse, sum(&crate::cli::Order::Sequential.sequence(40)));
    assert_eq!(reverse, sum(&crate::cli::Order::Random(9).sequence(40)));
    // The premise: as floats the sums do differ.
    let floats = |order: &mut dyn Iterator<Item = usize>| {
        let mut map = vec![0.0f32; 500];
        order.for_each(|i| {
            map.iter_mut()
                .zip(&fields[i])
                .for_each(|(m, v)| *m += v * v)
        });
        map
    };
    assert_ne!(floats(&mut (0..40)), floats(&mut (0..40).rev()));
    // The same close to the largest number, where it stays.
    let mut map = vec![i64::MAX - 10];
    crate::stencil::illuminate(&[1.0], &mut map);
    crate::stencil::illuminate(&[1e30], &mut map);
    assert_eq!(map, [i64::MAX]);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn cuda_agrees_with_the_host() {
    for shape in [[210, 1, 130], [90, 45, 61]] {
        let model = Model::made(shape, 10.0).unwrap();
        let run = |choice| {
            let lab = Lab::new(choice, &model, 12);
            let p = lab.propagator.as_ref();
            let spread = Spread::surface(lab.grid(), 2);
            let source = lab.grid().index([shape[0] / 3, shape[1] / 2, 2]);
            let signal = wavelet::ricker(15.0, lab.grid().dt, 200);
            let (forward, traces) = lab.shoot(source, &signal, spread);
            // Backwards with what is left after subtracting the last wavefield from every sample.
            let mut backward = lab.wavefield();
            for n in (0..200).rev() {
                p.record(&forward, &traces, n, Record::Subtract).unwrap();
                p.step(&lab.medium, &mut backward).unwrap();
                p.inject_traces(&lab.medium, &backward, &traces, n).unwrap();
            }
            let (image, map) = (lab.map(4), lab.map(8));
            p.correlate(&forward, &backward, &image).unwrap();
            p.illuminate(&forward, &map).unwrap();
            let map: Vec<i64> = read(p, &map).unwrap();
            let map = crate::image::illumination(&map);
            let mut fields: Vec<Vec<f32>> = [
                &forward.now,
                &forward.before,
                &traces.samples,
                &backward.now,
                &image,
            ]
            .map(|memory| lab.floats(memory))
            .to_vec();
            fields.push(map);
            fields
        };
        let (host, cuda) = (run(Choice::Host), run(Choice::Cuda { ordinal: 0 }));
        for (i, (host, cuda)) in host.iter().zip(&cuda).enumerate() {
            let error: Vec<f32> = host.iter().zip(cuda).map(|(h, c)| h - c).collect();
            let relative = peak(&error) / peak(host);
            assert!(
                peak(host) > 0.0 && relative < 1e-4,
                "field {i} of {shape:?}: {relative}"
            );
        }
    }
}
