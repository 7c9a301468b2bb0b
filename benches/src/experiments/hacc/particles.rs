//! The particles of a rank, as HACC has them: nine arrays, and a step that moves them.

use anyhow::{Result, ensure};
use xxhash_rust::xxh3::Xxh3;

use crate::random::{mix, unit};

/// Bytes of a particle in all arrays.
pub(super) const PARTICLE: usize = 7 * 4 + 8 + 2;

/// The names of the arrays, and the bytes of an element.
pub(super) const ARRAYS: [(&str, usize); 9] = [
    ("x", 4),
    ("y", 4),
    ("z", 4),
    ("vx", 4),
    ("vy", 4),
    ("vz", 4),
    ("phi", 4),
    ("id", 8),
    ("mask", 2),
];

/// Time of a substep. In a time of 1, a particle with the speed 1 crosses the box.
const TIME: f32 = 1e-3;

/// Particles in a periodic box of side 1, in a potential of one wave along each axis.
#[derive(Debug)]
pub struct Particles {
    position: [Vec<f32>; 3],
    velocity: [Vec<f32>; 3],
    phi: Vec<f32>,
    id: Vec<i64>,
    mask: Vec<u16>,
}

impl Particles {
    pub(super) fn new(count: usize, rank: usize) -> Self {
        let numbers = |axis: u64, scale: f32| {
            let seed = (rank as u64) << 40 | axis << 32;
            let number = |at| unit(mix(seed + at)) as f32 * scale;
            (0..count as u64).map(number).collect()
        };
        Self {
            position: [0, 1, 2].map(|axis| numbers(axis, 1.0)),
            velocity: [3, 4, 5].map(|axis| numbers(axis, 0.1)),
            phi: vec![0.0; count],
            id: (0..count as i64)
                .map(|at| (rank * count) as i64 + at)
                .collect(),
            mask: (0..count).map(|at| at as u16).collect(),
        }
    }

    /// Takes a leapfrog step: changes the velocities by the potential's slope, moves the particles, and sets their potentials.
    pub(super) fn advance(&mut self) {
        self.phi.fill(0.0);
        for (position, velocity) in self.position.iter_mut().zip(&mut self.velocity) {
            let particles = position.iter_mut().zip(velocity).zip(&mut self.phi);
            for ((x, v), phi) in particles {
                let (slope, height) = (*x * std::f32::consts::TAU).sin_cos();
                *v -= slope * TIME;
                *x += *v * TIME;
                *x -= x.floor();
                *phi += height;
            }
        }
    }

    /// Returns the arrays as bytes, in the order of `ARRAYS`.
    pub fn arrays(&self) -> [&[u8]; 9] {
        let [x, y, z] = self
            .position
            .each_ref()
            .map(|one| bytemuck::cast_slice(one));
        let [vx, vy, vz] = self
            .velocity
            .each_ref()
            .map(|one| bytemuck::cast_slice(one));
        let (phi, id) = (
            bytemuck::cast_slice(&self.phi),
            bytemuck::cast_slice(&self.id),
        );
        [
            x,
            y,
            z,
            vx,
            vy,
            vz,
            phi,
            id,
            bytemuck::cast_slice(&self.mask),
        ]
    }

    /// Returns the arrays as bytes to be written, in the order of `ARRAYS`.
    pub fn arrays_mut(&mut self) -> [&mut [u8]; 9] {
        let [x, y, z] = self
            .position
            .each_mut()
            .map(|one| bytemuck::cast_slice_mut(one));
        let [vx, vy, vz] = self
            .velocity
            .each_mut()
            .map(|one| bytemuck::cast_slice_mut(one));
        let phi = bytemuck::cast_slice_mut(&mut self.phi);
        let id = bytemuck::cast_slice_mut(&mut self.id);
        let mask = bytemuck::cast_slice_mut(&mut self.mask);
        [x, y, z, vx, vy, vz, phi, id, mask]
    }

    /// Clears the arrays, lets `read` read a checkpoint into them, and checks that they are as before.
    pub(super) fn come_back(&mut self, read: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let before = self.sum();
        for array in self.arrays_mut() {
            array.fill(0);
        }
        read(self)?;
        ensure!(self.sum() == before, "the particles came back wrong");
        Ok(())
    }

    fn sum(&self) -> u64 {
        let mut sum = Xxh3::new();
        for array in self.arrays() {
            sum.update(array);
        }
        sum.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particles_move_in_their_box_and_arrays_have_all_their_bytes() {
        let mut particles = Particles::new(100, 3);
        let before = particles.sum();
        particles.advance();
        assert_ne!(particles.sum(), before);
        let [xs, ..] = &particles.position;
        assert!(xs.iter().all(|x| (0.0..1.0).contains(x)));
        let arrays = particles.arrays();
        for (array, (name, bytes)) in arrays.iter().zip(ARRAYS) {
            assert_eq!(array.len(), 100 * bytes, "{name}");
        }
        let bytes: usize = arrays.iter().map(|array| array.len()).sum();
        assert_eq!(bytes, 100 * PARTICLE);
    }

    #[test]
    fn particles_that_came_back_wrong_are_an_error() {
        let mut particles = Particles::new(100, 0);
        assert!(particles.come_back(|_| Ok(())).is_err());
    }
}
