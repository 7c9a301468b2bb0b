//! The inputs: synthetic fields, weights and integers like those of applications.

use rayon::prelude::*;
use tierflow_codec::Element;

/// An input.
pub struct Field {
    pub name: String,
    pub element: Element,
    pub bytes: Vec<u8>,
}

/// Pseudo-random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn share(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Returns a normal number, by the method of Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.share().ln()).sqrt() * (std::f64::consts::TAU * self.share()).cos()
    }
}

fn made(name: &str, element: Element, n: usize, mut next: impl FnMut(&mut Random) -> f64) -> Field {
    let mut random = Random(n as u64);
    let mut bytes = Vec::with_capacity(n * element.bytes());
    for _ in 0..n {
        let value = next(&mut random);
        match element {
            Element::Bf16 => {
                // Rounds to the nearest, ties to even.
                let bits = (value as f32).to_bits();
                let rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
                bytes.extend((rounded as u16).to_le_bytes());
            }
            Element::I32 => bytes.extend((value as i32).to_le_bytes()),
            Element::F64 => bytes.extend(value.to_le_bytes()),
            _ => bytes.extend((value as f32).to_le_bytes()),
        }
    }
    Field {
        name: name.into(),
        element,
        bytes,
    }
}

/// Weights are normal, as initialised ones are; trained ones have heavier tails (Student's t with 5 degrees).
pub fn parameters(n: usize) -> Vec<Field> {
    let student = |random: &mut Random| {
        let squares: f64 = (0..5).map(|_| random.normal().powi(2)).sum();
        0.02 * random.normal() / (squares / 5.0).sqrt()
    };
    vec![
        made("weights, normal", Element::Bf16, n, |r| 0.02 * r.normal()),
        made("weights, heavy tails", Element::Bf16, n, student),
        made("weights, normal", Element::F32, n / 2, |r| {
            0.02 * r.normal()
        }),
        made("Adam, first moments", Element::F32, n / 2, |r| {
            1e-4 * r.normal() * (1.5 * r.normal()).exp()
        }),
        made("Adam, second moments", Element::F32, n / 2, |r| {
            (2.0 * r.normal() - 20.0).exp()
        }),
        made("degrees, power law", Element::I32, n / 2, |r| {
            (r.share().powf(-1.25)).min(1e6)
        }),
        made("state, normal", Element::F64, n / 4, Random::normal),
        made("noise", Element::I32, n / 2, |r| f64::from(r.word() as i32)),
    ]
}

const SIDE: [f32; 4] = [8.0 / 5.0, -1.0 / 5.0, 8.0 / 315.0, -1.0 / 560.0];
const CENTRE: f32 = -205.0 / 72.0;

/// The pressure of a shot in a cube of `n` cells each way, every `every` steps: the stencil, the sponge and the wavelet
/// of the example `rtm`, velocities that grow with depth, and a dipping reflector.
pub fn waves(n: usize, steps: usize, every: usize) -> Vec<Field> {
    const PAD: usize = 20;
    let (spacing, slowest, fastest) = (10.0_f32, 1500.0_f32, 4300.0_f32);
    let weight = -CENTRE + 2.0 * SIDE.iter().map(|c| c.abs()).sum::<f32>();
    let dt = 1.8 / (3.0 * weight).sqrt() * spacing / fastest;
    let frequency = slowest / (3.6 * spacing) / 2.5;
    let inside = |i: usize| (i.clamp(PAD, n - 1 - PAD) - PAD) as f32 / (n - 2 * PAD) as f32;
    let sponge: Vec<f32> = (0..n)
        .map(|i| {
            let depth = PAD.saturating_sub(i.min(n - 1 - i)) as f32;
            (-(0.3 / PAD as f32 * depth).powi(2)).exp()
        })
        .collect();
    let plane = n * n;
    let courant: Vec<f32> = (0..n * plane)
        .into_par_iter()
        .map(|cell| {
            let (x, y, z) = (inside(cell / plane), inside(cell / n % n), inside(cell % n));
            let deep = z + 0.1 * (5.0 * x).sin() - 0.05 * y > 0.6;
            // No side of the source mirrors the other, as a mirror image would count as redundancy.
            let slow = slowest + 1200.0 * z + 200.0 * (0.5 + 0.5 * (3.0 * x + 2.0 * y).sin());
            let velocity = slow + if deep { 1300.0 } else { 0.0 };
            (velocity * dt / spacing).powi(2)
        })
        .collect();
    let source = (n / 2) * plane + (n / 2) * n + PAD + 3;
    let (mut now, mut next) = (vec![0.0_f32; n * plane], vec![0.0_f32; n * plane]);
    let mut fields = Vec::new();
    for step in 1..=steps {
        next.par_chunks_mut(plane)
            .enumerate()
            .skip(4)
            .take(n - 8)
            .for_each(|(x, next)| {
                for y in 4..n - 4 {
                    let across = sponge[x] * sponge[y];
                    let start = x * plane + y * n;
                    for z in 4..n - 4 {
                        let i = start + z;
                        let mut laplacian = 3.0 * CENTRE * now[i];
                        for (k, c) in SIDE.iter().enumerate() {
                            let k = k + 1;
                            let sides = (now[i - k * plane] + now[i + k * plane])
                                + (now[i - k * n] + now[i + k * n])
                                + (now[i - k] + now[i + k]);
                            laplacian += c * sides;
                        }
                        let g = across * sponge[z];
                        let old = next[y * n + z];
                        let value = g * (2.0 * now[i] - g * old + courant[i] * laplacian);
                        next[y * n + z] = if value.abs() < 1e-20 { 0.0 } else { value };
                    }
                }
            });
        std::mem::swap(&mut now, &mut next);
        let a = (std::f32::consts::PI * (frequency * step as f32 * dt - 1.4)).powi(2);
        now[source] += courant[source] * (1.0 - 2.0 * a) * (-a).exp();
        if step % every == 0 {
            fields.push(Field {
                name: format!("wave {n}^3, step {step}"),
                element: Element::F32,
                bytes: now.iter().flat_map(|value| value.to_le_bytes()).collect(),
            });
        }
    }
    fields
}
